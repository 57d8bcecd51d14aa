package canon

import (
	"bytes"
	"slices"
	"sync"
)

// An orderer sorts the members of objects, which is what format does too: but
// after Marshal there is nothing else left to do, and this takes a fraction of
// the time. It gives up on names that are not plain ASCII.
type orderer struct {
	text    []byte // valid JSON without spaces, whose strings have no needless escapes
	at      int
	out     []byte
	members []member // of the objects that are open, the innermost last
	spare   []byte
}

// A member is one of an object, where it is in out.
type member struct{ start, nameEnd, end int }

var orderers = sync.Pool{New: func() any { return new(orderer) }}

// sortObjects sorts the objects in text, in place, or returns false if it has to be
// left to format.
func sortObjects(text []byte) bool {
	o := orderers.Get().(*orderer)
	defer orderers.Put(o)
	o.text, o.at, o.out, o.members = text, 0, o.out[:0], o.members[:0]
	ok := o.value()
	if ok {
		copy(text, o.out)
	}
	o.text = nil
	return ok
}

func (o *orderer) value() bool {
	switch c := o.text[o.at]; c {
	case '{', '[':
		return o.list(c)
	case '"':
		o.take(stringLen(o.text[o.at:]))
	default: // a number, true, false or null
		o.take(numberLen(o.text[o.at:]))
	}
	return true
}

func (o *orderer) take(n int) {
	o.out = append(o.out, o.text[o.at:o.at+n]...)
	o.at += n
}

// list is an object or an array.
func (o *orderer) list(open byte) bool {
	first, sorted := len(o.members), true
	for o.take(1); o.text[o.at] != open+2; { // } is two behind {, ] two behind [
		m := member{start: len(o.out)}
		if open == '{' && !o.name(&m) || !o.value() {
			return false
		}
		if open == '{' {
			m.end = len(o.out)
			sorted = sorted && (len(o.members) == first || o.compare(o.members[len(o.members)-1], m) < 0)
			o.members = append(o.members, m)
		}
		if o.text[o.at] == ',' {
			o.take(1)
		}
	}
	o.take(1)
	if !sorted {
		o.rearrange(o.members[first:])
	}
	o.members = o.members[:first]
	return true
}

// name takes a member's name and the colon.
func (o *orderer) name(m *member) bool {
	o.take(stringLen(o.text[o.at:]))
	m.nameEnd = len(o.out) - 1 // without the quote: it would sort "a!" before "a"
	o.take(1)
	for _, c := range o.out[m.start:m.nameEnd] {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

func (o *orderer) compare(a, b member) int {
	return bytes.Compare(o.out[a.start:a.nameEnd], o.out[b.start:b.nameEnd])
}

// rearrange puts members, which lie one behind the other in out, in order.
func (o *orderer) rearrange(members []member) {
	start := members[0].start
	slices.SortFunc(members, o.compare)
	o.spare = o.spare[:0]
	for i, m := range members {
		if i > 0 {
			o.spare = append(o.spare, ',')
		}
		o.spare = append(o.spare, o.out[m.start:m.end]...)
	}
	copy(o.out[start:], o.spare)
}
