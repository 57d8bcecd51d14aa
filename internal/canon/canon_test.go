package canon

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type line struct {
	SKU   string  `json:"sku"`
	Qty   int     `json:"qty"`
	Price float64 `json:"price"`
}

type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Note     string `json:"note,omitempty"`
	Lines    []line `json:"lines"`
	traceID  string
	Deadline time.Time `json:"-"`
}

type envelope struct {
	Orders []order
	ByID   map[string]*order
}

type base struct{ Tenant string }

type embedding struct {
	base
	Name string
}

// cents has an unexported field and says by a method what it stands for.
type cents struct{ n int }

func (c cents) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%02d", c.n/100, c.n%100), nil
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// The table of docs/payload_hash.md. Both are to be changed together.
func TestPayloadPairs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		a, b any
		want bool // equal
	}{
		{"B63 key order", raw(`{"a":1,"b":2}`), raw(`{"b":2,"a":1}`), true},
		{"B63 nested key order", raw(`[{"a":{"x":1,"y":2}}]`), raw(`[{"a":{"y":2,"x":1}}]`), true},
		{"spaces", raw(`{"a":[1,2]}`), raw("\n{ \"a\" :\t[ 1, 2 ] }\r\n"), true},
		{"escapes in a value", raw(`"A/é😀<"`), raw(`"\u0041\/\u00E9\ud83d\uDE00\u003c"`), true},
		{"escapes in a name", raw(`{"a":1,"b":2}`), raw(`{"b":2,"\u0061":1}`), true},
		{"list order", raw(`[1,2]`), raw(`[2,1]`), false},
		{"list nesting", raw(`[[1],2]`), raw(`[1,[2]]`), false},
		{"B65 null and absent", raw(`{"a":null}`), raw(`{}`), false},
		{"B65 null and false", raw(`null`), raw(`false`), false},
		{"B65 empty object and empty list", raw(`{}`), raw(`[]`), false},
		{"B65 empty string and null", raw(`""`), raw(`null`), false},
		{"B65 number and string", raw(`1`), raw(`"1"`), false},
		{"B65 a value moved to another key", raw(`{"a":1,"b":2}`), raw(`{"a":2,"b":1}`), false},
		{"B65 a value moved a level down", raw(`{"a":{"b":1}}`), raw(`{"a":{},"b":1}`), false},
		{"case of a name", raw(`{"a":1}`), raw(`{"A":1}`), false},
		{"composed and decomposed é", raw(`"\u00e9"`), raw(`"e\u0301"`), false},
		{"composed and decomposed é in names", raw(`{"\u00e9":1,"z":2}`), raw(`{"e\u0301":1,"z":2}`), false},

		{"B65 1 and 1.0", raw(`1`), raw(`1.0`), true},
		{"B65 1 and 1e0", raw(`1`), raw(`1e0`), true},
		{"B65 100 and 1E2", raw(`100`), raw(`1E2`), true},
		{"100 and 1e+02", raw(`100`), raw(`1e+02`), true},
		{"0.5 and 5e-1", raw(`0.5`), raw(`5e-1`), true},
		{"0 and -0", raw(`0`), raw(`-0`), true},
		{"0 and -0.0e9999999999999999999", raw(`0`), raw(`-0.0e9999999999999999999`), true},
		{"1e21 in digits", raw(`1000000000000000000000`), raw(`1e21`), true},
		{"1 and -1", raw(`1`), raw(`-1`), false},
		{"neighbours over 2^53", raw(`9007199254740993`), raw(`9007199254740992`), false},
		{"a float's 17th digit", raw(`12345678901234567.89`), raw(`12345678901234567.12`), false},
		{"beyond the range of a float", raw(`1e400`), raw(`1e401`), false},
		{"below the range of a float", raw(`1e-400`), raw(`0`), false},

		{"a struct and its JSON", order{ID: "o1", Amount: 5}, raw(`{"amount":5,"currency":"","customer":"","id":"o1","lines":null}`), true},
		{"a struct and a pointer to it", order{ID: "o1"}, &order{ID: "o1"}, true},
		{"a struct and a map", base{"t"}, map[string]any{"Tenant": "t"}, true},
		{"encoding/json's Number and an int", map[string]any{"n": json.Number("1.0")}, map[string]int{"n": 1}, true},
		{"int64 and float64", int64(1), float64(1), true},
		{"float64 and float32", 0.1, float32(0.1), true},
		{"an unexported field", order{traceID: "x"}, order{traceID: "y"}, true},
		{"a field tagged json:\"-\"", order{Deadline: time.Unix(1, 0)}, order{Deadline: time.Unix(2, 0)}, true},
		{"B69 hidden fields in lists and maps",
			envelope{[]order{{traceID: "x"}}, map[string]*order{"k": {Deadline: time.Unix(1, 0)}}},
			envelope{[]order{{traceID: "y"}}, map[string]*order{"k": {Deadline: time.Unix(2, 0)}}}, true},
		{"B69 visible fields in lists", envelope{Orders: []order{{ID: "x"}}}, envelope{Orders: []order{{ID: "y"}}}, false},
		{"B69 visible fields in maps",
			envelope{ByID: map[string]*order{"k": {Lines: []line{{Qty: 1}}}}},
			envelope{ByID: map[string]*order{"k": {Lines: []line{{Qty: 2}}}}}, false},
		{"omitempty: zero and absent", order{Note: ""}, order{}, true},
		{"without omitempty: zero and absent", order{}, raw(`{"id":"","customer":"","currency":"","lines":null}`), false},
		{"nil and empty slice", order{Lines: nil}, order{Lines: []line{}}, false},
		{"fields of an embedded struct", embedding{base{"t"}, "n"}, raw(`{"Name":"n","Tenant":"t"}`), true},
		{"a type in an interface field", struct{ V any }{line{SKU: "s"}}, struct{ V any }{map[string]any{"sku": "s", "qty": 0, "price": 0}}, true},
		{"MarshalJSON", cents{150}, 1.5, true},
		{"MarshalJSON of different values", cents{150}, cents{151}, false},
		{"bytes in a struct and base64", struct{ B []byte }{[]byte("hi")}, raw(`{"B":"aGk="}`), true},
		{"one instant in two time zones", time.Unix(0, 0).UTC(), time.Unix(0, 0).In(time.FixedZone("", 3600)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, b := mustJSON(t, tt.a), mustJSON(t, tt.b)
			if got := string(a) == string(b); got != tt.want {
				t.Errorf("equal = %v, want %v\n%s\n%s", got, tt.want, a, b)
			}
		})
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := JSON(v)
	if err != nil {
		t.Fatalf("JSON(%#v): %v (%v)", v, err, errors.Unwrap(err))
	}
	return text
}

// These bytes are what stored hashes were made of. If one changes, the hash
// needs a new version.
func TestFormIsStable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   any
		want string
	}{
		{raw(`{}`), `{}`},
		{raw(`[ ]`), `[]`},
		{raw(`[{},[],"",true,false,null]`), `[{},[],"",true,false,null]`},
		{json.RawMessage(nil), `null`},
		{nil, `null`},
		{struct{}{}, `{}`},
		{(*order)(nil), `null`},
		{"<\u2028\x00\x1f\x7f\"\\/", "\"<\u2028\\u0000\\u001f\x7f\\\"\\\\/\""},
		// RFC 8785, section 3.2.3.
		{
			raw(`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`),
			"{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\ufb33\":3}",
		},
		{raw(`{"b":{"z":1,"y":[{"d":4,"c":3}]},"a":"}],{"}`), `{"a":"}],{","b":{"y":[{"c":3,"d":4}],"z":1}}`},
		{raw(`{"a\\":1,"a\"":2,"a":3}`), `{"a":3,"a\"":2,"a\\":1}`},
		{raw(`[-0.0,1.50,-12e1,123e-2,0.00001,0.000001,0.0000001,1e20,1e21,1.5e300]`),
			`[0,1.5,-120,1.23,0.00001,0.000001,1e-7,100000000000000000000,1e+21,1.5e+300]`},
		{raw(`1234567890123456789012`), `1.234567890123456789012e+21`},
		{raw(`-1e-999999999999999999`), `-1e-999999999999999999`},
		{uint64(math.MaxUint64), `18446744073709551615`},
		{big.NewInt(5), `5`},
		{map[int]bool{10: true, 9: false}, `{"10":true,"9":false}`},
		{struct {
			N json.Number `json:",string"`
		}{"1.0"}, `{"N":"1.0"}`},
	} {
		if diff := cmp.Diff(tt.want, string(mustJSON(t, tt.in))); diff != "" {
			t.Errorf("JSON(%#v) mismatch (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestValuesAreEncodedAsByEncodingJSON(t *testing.T) {
	t.Parallel()
	n := json.Number("1.50")
	for _, v := range []any{
		order{ID: "<&>\u2028", Lines: []line{{Price: 1e21}, {Price: 1e-7}}},
		struct {
			A []byte
			B [2]byte
			C time.Duration
			D map[int]float32
			E *json.Number
			F int `json:",string"`
			G any `json:"g,omitempty"`
			H []json.Number
			I json.RawMessage
			J time.Time `json:",omitzero"`
			K error
		}{A: []byte{255}, C: time.Second, D: map[int]float32{-1: 0.1}, E: &n, H: []json.Number{"", "1e5"}, I: raw(`{"b" :"\u0041"}`)},
		map[string]any{"n": n, "list": []any{1, "1", nil, true, byText{}, &byPointer{}, byPointer{}}},
		map[byText]int{{}: 1},
		[]byPointer{{}}, map[string]byPointer{"k": {}},
		namedEmbed{}, embedding{}, embedsTime{}, cents{199}, byText{},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(mustJSON(t, raw(string(text)))), string(mustJSON(t, v))); diff != "" {
			t.Errorf("%T mismatch (-encoding/json +got):\n%s", v, diff)
		}
	}
}

func TestInputIsNotChanged(t *testing.T) {
	t.Parallel()
	const text = ` {"b":"\u0041","a":1.0} `
	in := raw(text)
	mustJSON(t, in)
	if diff := cmp.Diff(text, string(in)); diff != "" {
		t.Errorf("input mismatch (-want +got):\n%s", diff)
	}
}

type (
	opaque   struct{ n int }
	excluded struct {
		N int `json:"-"`
	}
	bothHidden  struct{ opaque }
	selfish     struct{ *selfish }
	embedsError struct{ error }
	byPointer   struct{ n int }
	dash        struct {
		N int `json:"-,"`
	}
	namedEmbed struct {
		opaque `json:"o"`
	}
	byText     struct{ n int }
	embedsTime struct{ time.Time }
)

func (*byPointer) MarshalJSON() ([]byte, error) { return []byte(`1`), nil }
func (byText) MarshalText() ([]byte, error)     { return []byte("text"), nil }

func TestStructsThatSayNothingAreRefused(t *testing.T) {
	t.Parallel()
	inInterface := any(opaque{1})
	pointer := &opaque{1}
	for _, v := range []any{
		errors.New("x"), fmt.Errorf("x: %w", errors.New("y")),
		opaque{1}, &pointer, &inInterface, excluded{1}, bothHidden{}, selfish{}, embedsError{errors.New("x")},
		byPointer{1}, // its method is not called without a pointer
		&sync.Mutex{}, big.Int{},
	} {
		if text, err := JSON(v); err == nil {
			t.Errorf("JSON(%T) = %s, want an error", v, text)
		}
	}
	for _, v := range []any{
		struct{}{}, struct{ N int }{}, struct {
			N int `json:",omitempty"`
		}{},
		embedding{}, &byPointer{1}, dash{}, namedEmbed{}, byText{1}, embedsTime{}, (*opaque)(nil),
	} {
		if _, err := JSON(v); err != nil {
			t.Errorf("JSON(%T): %v", v, err)
		}
	}
}

type (
	panics  struct{}
	derefs  struct{ p *int }
	fails   struct{}
	invalid struct{}
	cycle   struct{ Next *cycle }
)

const secret = "s3cret"

func (panics) MarshalJSON() ([]byte, error)   { panic(secret) }
func (d derefs) MarshalJSON() ([]byte, error) { return []byte{byte(*d.p)}, nil }
func (fails) MarshalJSON() ([]byte, error)    { return nil, errors.New(secret) }
func (invalid) MarshalJSON() ([]byte, error)  { return []byte(`{"` + secret), nil }

func TestWhatHasNoCanonicalFormIsAnErrorThatDoesNotQuoteIt(t *testing.T) {
	t.Parallel()
	loop := &cycle{}
	loop.Next = loop
	selfMap := map[string]any{}
	selfMap[secret] = selfMap
	for _, tt := range []struct {
		in   any
		want string
	}{
		{raw(``), `invalid JSON at byte 0`},
		{raw(`{"s3cret":`), `invalid JSON at byte 10`},
		{raw(`1 "s3cret"`), `invalid JSON at byte 2`},
		{raw(`{"s3cret":1,"s3cret":1}`), `invalid JSON at byte 12: an object repeats a name`},
		{raw(`[{"s3cret":1,"\u00733cret":2}]`), `invalid JSON at byte 13: an object repeats a name`},
		{map[string]any{"k": raw(`{"s3cret":1,"s3cret":1}`)}, `map[string]interface {} cannot be encoded as JSON: an object repeats a name`},
		{map[byText]int{{1}: 1, {2}: 2}, `map[canon.byText]int cannot be encoded as JSON: an object repeats a name`},
		{raw("\"s3cret\xff\""), `invalid JSON at byte 7: a string is not valid UTF-8`},
		{raw(`"s3cret\ud800"`), `invalid JSON at byte 7`},
		{secret + "\xff", `string cannot be encoded as JSON: a string is not valid UTF-8`},
		{map[string]int{secret + "\xff": 1}, `map[string]int cannot be encoded as JSON: a string is not valid UTF-8`},
		{raw(`1e1000000000000000000`), `a number has an exponent of more than 18 digits`},
		{raw(`[1e-1000000000000000000]`), `a number has an exponent of more than 18 digits`},
		{math.NaN(), `float64 cannot be encoded as JSON: unsupported value: NaN`},
		{[]float64{math.Inf(1)}, `[]float64 cannot be encoded as JSON: unsupported value: +Inf`},
		{make(chan int), `chan int cannot be encoded as JSON: unsupported type chan int`},
		{struct{ F func() }{func() {}}, `struct { F func() } cannot be encoded as JSON: unsupported type func()`},
		{loop, `*canon.cycle cannot be encoded as JSON: unsupported value: encountered a cycle via *canon.cycle`},
		{selfMap, `map[string]interface {} cannot be encoded as JSON: unsupported value: encountered a cycle via map[string]interface {}`},
		{json.Number(secret), `json.Number cannot be encoded as JSON: the marshal method of *json.Number failed`},
		{panics{}, `a marshal method called for canon.panics panicked`},
		{[]any{derefs{}}, `a marshal method called for []interface {} panicked: runtime error: invalid memory address or nil pointer dereference`},
		{fails{}, `canon.fails cannot be encoded as JSON: the marshal method of *canon.fails failed`},
		{invalid{}, `canon.invalid cannot be encoded as JSON: the marshal method of *canon.invalid failed`},
	} {
		text, err := JSON(tt.in)
		if err == nil {
			t.Errorf("JSON(%T) = %s, want an error", tt.in, text)
			continue
		}
		if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
			t.Errorf("JSON(%T) error mismatch (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestCauseIsKept(t *testing.T) {
	t.Parallel()
	sentinel := errors.New("sentinel")
	if _, err := JSON(map[string]any{"k": failsWith{sentinel}}); !errors.Is(err, sentinel) {
		t.Errorf("error %v does not wrap the marshal method's", err)
	}
}

type failsWith struct{ err error }

func (f failsWith) MarshalJSON() ([]byte, error) { return nil, f.err }

func TestDeepNestingIsAnErrorNotACrash(t *testing.T) {
	t.Parallel()
	deep := make([]byte, 1_000_000)
	for i := range deep {
		deep[i] = '['
	}
	if _, err := JSON(raw(string(deep))); err == nil {
		t.Error("a million open brackets are accepted")
	}
}

func BenchmarkJSON(b *testing.B) {
	o := &order{
		ID: "ord_01HZX3J5Q8Y7", Customer: "cus_9f8e7d6c5b4a", Amount: 129900, Currency: "EUR",
		Note:  "Please leave the parcel at the door, ring twice and mind the dog in the yard.",
		Lines: []line{{"SKU-1001", 2, 19.99}, {"SKU-2002", 1, 899.5}, {"SKU-3003", 10, 1}},
	}
	text, err := json.Marshal(o)
	if err != nil {
		b.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		b.Fatal(err)
	}
	for _, bm := range []struct {
		name string
		v    any
	}{{"struct", o}, {"raw", json.RawMessage(text)}, {"map", tree}} {
		b.Run(fmt.Sprintf("%s of %d bytes", bm.name, len(text)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := JSON(bm.v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
