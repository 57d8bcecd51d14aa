package canon

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func FuzzObjectsAreSortedAsByFormat(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `{"b":1,"a":2}`, `{"b":{"d":[{"f":"}","e":","}],"c":null},"a":[1,"\\\"",true]}`, `[{"a b":1,"a":2,"a!":3}]`,
		`{"é":1,"a":2}`, `{"\\":1,"a":2}`, `"x"`, `-1.5e3`, `{"a":{"z":0},"A":{"y":1,"x":2},"":[]}`, `{"b":"","":""}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		canonical, err := format(nil, text)
		if err != nil {
			return
		}
		// The members of a canonical text are in order already, so they are
		// turned around first.
		reversed := reverse(canonical)
		got := bytes.Clone(reversed)
		if !sortObjects(got) {
			return
		}
		if diff := cmp.Diff(string(canonical), string(got)); diff != "" {
			t.Errorf("order of %s (-want +got):\n%s", reversed, diff)
		}
	})
}

// reverse writes the members of each object the other way around.
func reverse(text []byte) []byte {
	o := reverser{text: text}
	return o.value()
}

type reverser struct {
	text []byte
	at   int
}

func (r *reverser) take(n int) []byte {
	r.at += n
	return r.text[r.at-n : r.at]
}

func (r *reverser) value() []byte {
	open := r.text[r.at]
	switch open {
	case '"':
		return r.take(stringLen(r.text[r.at:]))
	case '{', '[':
	default:
		return r.take(numberLen(r.text[r.at:]))
	}
	r.take(1)
	var items [][]byte
	for r.text[r.at] != open+2 { // } is two behind {, ] two behind [
		var item []byte
		if open == '{' {
			item = append(item, r.take(stringLen(r.text[r.at:]))...)
			item = append(item, r.take(1)...)
		}
		item = append(item, r.value()...)
		if r.text[r.at] == ',' {
			r.take(1)
		}
		if open == '{' {
			items = append([][]byte{item}, items...)
		} else {
			items = append(items, item)
		}
	}
	r.take(1)
	out := []byte{open}
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, open+2)
}
