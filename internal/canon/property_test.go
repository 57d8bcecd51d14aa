package canon

import (
	"bytes"
	stdcmp "cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// decimal is an exact number, independent of how appendNumber sees it:
// coefficient × 10^exponent, the coefficient without a factor of ten.
type decimal struct{ Coefficient, Exponent string }

func parseDecimal(n json.Number) decimal {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(n.String()), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	c, ok1 := new(big.Int).SetString(whole+fraction, 10)
	e, ok2 := new(big.Int).SetString(stdcmp.Or(exponent, "0"), 10)
	if !ok1 || !ok2 {
		panic("not a JSON number: " + n)
	}
	if c.Sign() == 0 {
		return decimal{"0", "0"}
	}
	e.Sub(e, big.NewInt(int64(len(fraction))))
	for ten, rem := big.NewInt(10), new(big.Int); ; e.Add(e, big.NewInt(1)) {
		q := new(big.Int)
		if q.QuoRem(c, ten, rem); rem.Sign() != 0 {
			return decimal{c.String(), e.String()}
		}
		c = q
	}
}

// parseTree reads JSON with encoding/json into what it means. It is the oracle:
// it shares no code with this package.
func parseTree(text []byte) (any, error) {
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, errors.New("invalid")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	tree, err := readTree(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("trailing data")
	}
	return tree, nil
}

func readTree(dec *json.Decoder) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		obj := map[string]any{}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, err
			}
			if _, ok := obj[name.(string)]; ok {
				return nil, errors.New("repeated name")
			}
			if obj[name.(string)], err = readTree(dec); err != nil {
				return nil, err
			}
		}
		_, err = dec.Token()
		return obj, err
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := readTree(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	if n, ok := tok.(json.Number); ok {
		return parseDecimal(n), nil
	}
	return tok, nil
}

func FuzzCanonicalJSON(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":[2,null]}`, ` {"b":[2.0,null],"\u0061":1e0}`},
		{`{"a":1,"a":1}`, `{"a":1}`},
		{`9007199254740993`, `9007199254740992`},
		{`[1e400,-0,0.1,100]`, `[1e401,0,1e-1,1E+2]`},
		{`1e-999999999999999999`, `1e1000000000000000000`},
		{`"\ud83d\ude00\ud800"`, `"😀\u003c\/"`},
		{`{"😀":1,"\ufb33":2,"\"":{}}`, "\"\xff\""},
		{`123456789012345678901`, `1.23456789012345678901e20`},
		{`0.000001`, `0.0000001`},
		{`[[[]],true,false]`, `[`},
		{``, ` `},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		ca, ta, oka := checkCanonical(t, a)
		cb, tb, okb := checkCanonical(t, b)
		if oka && okb && bytes.Equal(ca, cb) != cmp.Equal(ta, tb) {
			t.Errorf("equal text = %v, equal meaning = %v\n%s\n%s", bytes.Equal(ca, cb), cmp.Equal(ta, tb), ca, cb)
		}
	})
}

// checkCanonical compares with the oracle what JSON makes of one text.
func checkCanonical(t *testing.T, text []byte) (canonical []byte, tree any, ok bool) {
	t.Helper()
	canonical, err := JSON(json.RawMessage(append([]byte{}, text...))) // nil is null
	tree, oracleErr := parseTree(text)
	switch {
	case err != nil && oracleErr != nil:
		return nil, nil, false
	case err == nil && oracleErr != nil:
		t.Fatalf("JSON accepts %q, the oracle does not: %v", text, oracleErr)
	case errors.Is(err, errExponent):
		return nil, nil, false
	case err != nil && bytes.Contains(bytes.ToLower(text), []byte(`\ud`)):
		return nil, nil, false // half a surrogate pair, which encoding/json replaces
	case err != nil:
		t.Fatalf("JSON refuses %q: %v", text, errors.Unwrap(err))
	}
	again, err := parseTree(canonical)
	if err != nil {
		t.Fatalf("canonical form of %q is no JSON: %v\n%s", text, err, canonical)
	}
	if diff := cmp.Diff(tree, again); diff != "" {
		t.Fatalf("canonical form of %q means something else (-want +got):\n%s", text, diff)
	}
	twice, err := JSON(json.RawMessage(canonical))
	if err != nil {
		t.Fatalf("canonical form of %q is refused: %v", text, err)
	}
	if diff := cmp.Diff(string(canonical), string(twice)); diff != "" {
		t.Fatalf("canonical form of %q is not its own (-once +twice):\n%s", text, diff)
	}
	return canonical, tree, true
}

// Where all numbers are floats, the form is that of RFC 8785, so that any library
// for it computes the same hash.
func TestFormOfFloatsIsThatOfRFC8785(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3_000 {
		doc := map[string]any{}
		for range 6 {
			if f := math.Float64frombits(r.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
				doc[randomString(r)] = []any{f, float64(r.Int64N(1<<53)) / 1e6}
			}
		}
		text := write(r, doc)
		want := jsontext.Value(text)
		if err := want.Canonicalize(); err != nil {
			t.Fatal(err)
		}
		if got := mustJSON(t, raw(text)); string(got) != string(want) {
			t.Fatalf("%s\nhas the form %s\nwant %s", text, got, want)
		}
	}
}

// num is the number c × 10^e.
type num struct{ c, e int64 }

func randomValue(r *rand.Rand, depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch r.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2, 3:
		return num{r.Int64N(1<<r.IntN(62)+1) - 1<<10, r.Int64N(60) - 30}
	case 4:
		return randomString(r)
	case 5:
		list := make([]any, r.IntN(5))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	default:
		obj := map[string]any{}
		for range r.IntN(6) {
			obj[randomString(r)] = randomValue(r, depth-1)
		}
		return obj
	}
}

func randomString(r *rand.Rand) string {
	alphabet := []rune("ab\"\\/<\x00\n é\u0301€\u2028\ufb33\uffff😀𐀀")
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteRune(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

// change returns v with one value in it, however deep, replaced by another.
func change(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return !v
	case num:
		return num{v.c*10 + 1, v.e - 1} // one more digit
	case string:
		return v + "x"
	case []any:
		if len(v) == 0 {
			return []any{nil}
		}
		v = slices.Clone(v)
		i := r.IntN(len(v))
		v[i] = change(r, v[i])
		return v
	case map[string]any:
		if len(v) == 0 {
			return map[string]any{"": nil}
		}
		names := slices.Sorted(maps.Keys(v))
		name := names[r.IntN(len(names))]
		v = maps.Clone(v)
		v[name] = change(r, v[name])
		return v
	}
	panic(fmt.Sprintf("unexpected %T", v))
}

// write writes v as JSON in one of its many ways.
func write(r *rand.Rand, v any) string {
	space := func() string { return strings.Repeat(string(" \t\n\r"[r.IntN(4)]), r.IntN(2)) }
	switch v := v.(type) {
	case num:
		return writeNumber(r, v)
	case float64:
		return strconv.FormatFloat(v, "eEf"[r.IntN(3)], -1, 64)
	case string:
		return writeString(r, v)
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, space()+write(r, item)+space())
		}
		return "[" + strings.Join(items, ",") + "]"
	case map[string]any:
		var members []string
		for name, value := range v {
			members = append(members, space()+writeString(r, name)+space()+":"+space()+write(r, value)+space())
		}
		return "{" + strings.Join(members, ",") + "}"
	default:
		return fmt.Sprint(map[any]string{nil: "null", true: "true", false: "false"}[v])
	}
}

func writeNumber(r *rand.Rand, n num) string {
	sign := ""
	if n.c < 0 {
		n.c, sign = -n.c, "-"
	}
	zeros := r.IntN(4)
	digits := strconv.FormatInt(n.c, 10) + strings.Repeat("0", zeros)
	fraction := r.IntN(len(digits) + 1)
	exp := n.e - int64(zeros) + int64(fraction)
	text := sign + digits[:len(digits)-fraction]
	if fraction == len(digits) {
		text += "0"
	}
	if n.c == 0 {
		text = "0"
	}
	if fraction > 0 {
		text += "." + digits[len(digits)-fraction:]
	}
	if exp != 0 || r.IntN(2) == 0 {
		text += []string{"e", "E"}[r.IntN(2)] + strconv.FormatInt(exp, 10)
	}
	return text
}

func writeString(r *rand.Rand, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch must := c < ' ' || c == '"' || c == '\\'; {
		case !must && r.IntN(2) == 0:
			b.WriteRune(c)
		case c == '/' && r.IntN(2) == 0:
			b.WriteString(`\/`)
		default:
			for _, u := range utf16.Encode([]rune{c}) {
				fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[r.IntN(2)], u)
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}
