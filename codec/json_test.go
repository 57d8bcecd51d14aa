package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type address struct {
	Street string
	Zip    *string `json:"zip,omitempty"`
}

type receipt struct {
	ID       string            `json:"id"`
	Total    int64             `json:"total"`
	Rate     float64           `json:"rate"`
	Paid     bool              `json:"paid"`
	At       time.Time         `json:"at"`
	Token    []byte            `json:"token"`
	Labels   map[string]string `json:"labels"`
	Lines    []line            `json:"lines"`
	Ship     *address          `json:"ship,omitempty"`
	Elapsed  time.Duration     `json:"elapsed"`
	internal string
}

type line struct {
	SKU string `json:"sku"`
	Qty int    `json:"qty"`
}

func newReceipt() receipt {
	return receipt{
		ID: "rcpt_01HZX3J5Q8Y7", Total: 129900, Rate: 0.19, Paid: true,
		At:    time.Date(2025, 1, 2, 3, 4, 5, 678, time.UTC),
		Token: []byte{0, 1, 254, 255}, Labels: map[string]string{"channel": "web"},
		Lines: []line{{"SKU-1001", 2}, {"SKU-2002", 1}, {"SKU-3003", 10}},
		Ship:  &address{Street: "Unter den Linden 5"}, Elapsed: 1500 * time.Millisecond,
	}
}

func TestJSONBringsValuesBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		v    any
	}{
		{"a struct", newReceipt()},
		{"a zero struct", receipt{}},
		{"an empty struct", struct{}{}},
		{"zero", 0}, {"false", false}, {"an empty string", ""}, {"an empty list", []int{}}, {"a nil list", []int(nil)},
		{"a nil pointer", (*receipt)(nil)},
		{"largest int64", int64(math.MaxInt64)}, {"smallest int64", int64(math.MinInt64)}, {"largest uint64", uint64(math.MaxUint64)},
		{"B73 an id over 2^53", struct{ ID int64 }{9007199254740993}},
		{"largest float", math.MaxFloat64}, {"smallest float", math.SmallestNonzeroFloat64}, {"a float of 17 digits", 0.30000000000000004},
		{"float32", float32(0.1)},
		{"B47 NUL in a string", "a\x00b"}, {"B47 NUL in a name", map[string]string{"\x00": "\x00"}},
		{"all of Unicode", "é e\u0301 😀 \u2028 \ufffd \uffff <&>"},
		{"bytes", []byte{0, 0xff, 0xfe}},
		{"encoding/json's Number", json.Number("1.50")},
		{"B49 raw JSON", json.RawMessage(`{"b":1.0,"a":"\u003c<","b":2}`)},
		{"an array", [2]byte{1, 2}},
		{"a map with int keys", map[int]string{-1: "x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := reflect.New(reflect.TypeOf(tt.v))
			roundTrip(t, JSON{}, tt.v, got.Interface())
			if diff := cmp.Diff(tt.v, got.Elem().Interface(), cmp.AllowUnexported(receipt{})); diff != "" {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func roundTrip(t *testing.T, c Codec, in, out any) {
	t.Helper()
	data, err := c.Encode(in, nil)
	if err != nil {
		t.Fatalf("Encode: %v (%v)", err, errors.Unwrap(err))
	}
	if err := c.Decode(data, c.Version(), out, nil); err != nil {
		t.Fatalf("Decode(%s): %v (%v)", data, err, errors.Unwrap(err))
	}
}

func TestB73NumbersInInterfacesKeepTheirDigits(t *testing.T) {
	t.Parallel()
	in := map[string]any{"id": int64(9007199254740993), "price": 1.5, "list": []any{uint64(math.MaxUint64)}}
	want := map[string]any{"id": json.Number("9007199254740993"), "price": json.Number("1.5"), "list": []any{json.Number("18446744073709551615")}}
	var got map[string]any
	roundTrip(t, JSON{}, in, &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	// A replay may be decoded, encoded and decoded again.
	var again any
	roundTrip(t, JSON{}, got, &again)
	if diff := cmp.Diff(any(want), again); diff != "" {
		t.Errorf("second round mismatch (-want +got):\n%s", diff)
	}
}

const secret = "s3cret"

type (
	panics    struct{}
	derefs    struct{ p *int }
	fails     struct{}
	unfails   struct{}
	unpanics  struct{}
	cycle     struct{ Next *cycle }
	textFails struct{}
)

func (panics) MarshalJSON() ([]byte, error)    { panic(secret) }
func (d derefs) MarshalJSON() ([]byte, error)  { return []byte{byte(*d.p)}, nil }
func (fails) MarshalJSON() ([]byte, error)     { return nil, errors.New(secret) }
func (textFails) MarshalText() ([]byte, error) { return nil, errors.New(secret) }
func (*unfails) UnmarshalJSON(b []byte) error  { return fmt.Errorf("%s in %s", secret, b) }
func (*unpanics) UnmarshalJSON(b []byte) error { panic(secret) }

func TestWhatJSONCannotKeepIsAnErrorThatDoesNotQuoteIt(t *testing.T) {
	t.Parallel()
	loop := &cycle{}
	loop.Next = loop
	rawRefused := fmt.Sprintf("codec: cannot encode %T as JSON", json.RawMessage{}) // has two names
	for _, tt := range []struct {
		in   any
		want string
	}{
		{math.NaN(), "codec: cannot encode float64 as JSON: unsupported value: NaN"}, // B75
		{[]float64{math.Inf(-1)}, "codec: cannot encode []float64 as JSON: unsupported value: -Inf"},
		{make(chan int), "codec: cannot encode chan int as JSON: unsupported type chan int"},
		{map[string]any{secret: func() {}}, "codec: cannot encode map[string]interface {} as JSON: unsupported type func()"},
		{loop, "codec: cannot encode *codec.cycle as JSON: unsupported value: encountered a cycle via *codec.cycle"},
		{secret + "\xff", "codec: cannot encode string as JSON"},
		{map[string]int{secret + "\xff": 1}, "codec: cannot encode map[string]int as JSON"},
		{json.RawMessage("\"" + secret + "\xff\""), rawRefused},
		{json.RawMessage(`"s3cret\ud800"`), rawRefused},
		{json.RawMessage(`{"s3cret":`), rawRefused},
		{json.Number(secret), "codec: cannot encode json.Number as JSON"},
		{fails{}, "codec: cannot encode codec.fails as JSON"},
		{textFails{}, "codec: cannot encode codec.textFails as JSON"},
		{panics{}, "codec: a method called to encode codec.panics as JSON panicked"},
		{[]any{derefs{}}, "codec: a method called to encode []interface {} as JSON panicked: runtime error: invalid memory address or nil pointer dereference"},
	} {
		data, err := JSON{}.Encode(tt.in, nil)
		if err == nil {
			t.Errorf("Encode(%T) = %s, want an error", tt.in, data)
			continue
		}
		if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
			t.Errorf("Encode(%T) error mismatch (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestStoredDataThatDoesNotFitIsAnErrorThatDoesNotQuoteIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, data string
		into       any
		want       string
	}{
		{"nothing", ``, new(int), "codec: cannot decode *int as JSON"},
		{"truncated", `{"id":"s3cret`, new(receipt), "codec: cannot decode *codec.receipt as JSON"},
		{"a second value", `1 "s3cret"`, new(int), "codec: stored JSON is followed by more data"},
		{"a stray bracket", `{}}`, new(receipt), "codec: stored JSON is followed by more data"},
		{"garbage behind", `1 x`, new(int), "codec: stored JSON is followed by more data"},
		{"not JSON", `s3cret`, new(int), "codec: cannot decode *int as JSON"},
		{"invalid UTF-8", "\"s3cret\xff\"", new(string), "codec: stored JSON is not valid UTF-8"},
		{"another type", `{"total":"s3cret"}`, new(receipt), "codec: cannot decode *codec.receipt as JSON: stored value does not fit int64"},
		{"too large a number", `300`, new(int8), "codec: cannot decode *int8 as JSON: stored value does not fit int8"},
		{"a failing method", `"s3cret"`, new(unfails), "codec: cannot decode *codec.unfails as JSON"},
		{"a panicking method", `"s3cret"`, new(unpanics), "codec: a method called to decode *codec.unpanics as JSON panicked"},
		{"no pointer", `1`, 0, "codec: cannot decode int as JSON"},
		{"nil", `1`, nil, "codec: cannot decode <nil> as JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := JSON{}.Decode([]byte(tt.data), 1, tt.into, nil)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("error mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrailingSpaceIsNoGarbage(t *testing.T) {
	t.Parallel()
	var got int
	if err := (JSON{}).Decode([]byte(" 1 \n"), 1, &got, nil); err != nil || got != 1 {
		t.Errorf("got %d, %v", got, err)
	}
}

// What can be encoded can be decoded, up to the deepest nesting.
func TestDeepNestingIsRefusedByEncodeNotByDecode(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{9_999, 10_000, 10_001, 1_000_000} {
		in := json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		data, err := JSON{}.Encode(in, nil)
		if (err == nil) != (depth <= 10_000) {
			t.Errorf("depth %d: Encode: %v", depth, err)
		}
		if err != nil {
			continue
		}
		var out any
		if err := (JSON{}).Decode(data, 1, &out, nil); err != nil {
			t.Errorf("depth %d: Decode: %v", depth, err)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	upcast := func(version int, data []byte) ([]byte, error) {
		if version == 1 {
			return fmt.Appendf(nil, `{"Cents":%s00}`, data), nil
		}
		return nil, errors.New(secret)
	}
	type money struct{ Cents int }
	for _, tt := range []struct {
		name    string
		codec   JSON
		version int
		data    string
		want    int
		err     string
	}{
		{"the current one", JSON{}, 1, `{"Cents":5}`, 5, ""},
		{"a new field needs no new one", JSON{}, 1, `{}`, 0, ""},
		{"an older one", JSON{3, upcast}, 1, `7`, 700, ""},
		{"an older one that cannot be upcast", JSON{3, upcast}, 2, `7`, 0, "codec: upcasting JSON of version 2 failed"},
		{"an older one without Upcast", JSON{SchemaVersion: 2}, 1, `{"Cents":5}`, 0, "codec: JSON of version 1 needs Upcast to become version 2"},
		{"a newer one", JSON{2, upcast}, 3, `{"Cents":5}`, 0, "codec: JSON of version 3 is unknown to a codec of version 2"},
		{"none", JSON{2, upcast}, 0, `{"Cents":5}`, 0, "codec: JSON of version 0 is unknown to a codec of version 2"},
		{"a panic in Upcast", JSON{2, func(int, []byte) ([]byte, error) { panic(secret) }}, 1, `1`, 0,
			"codec: a method called to decode *codec.money as JSON panicked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got money
			err := tt.codec.Decode([]byte(tt.data), tt.version, &got, nil)
			if diff := cmp.Diff(money{tt.want}, got); diff != "" {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tt.err, text); diff != "" {
				t.Errorf("error mismatch (-want +got):\n%s", diff)
			}
		})
	}
	if got := (JSON{}).Version(); got != 1 {
		t.Errorf("Version() of the zero JSON = %d, want 1", got)
	}
	if _, err := (JSON{SchemaVersion: -1}).Encode(1, nil); err == nil {
		t.Error("a negative SchemaVersion is accepted")
	}
}

type fuzzed struct {
	S string
	B []byte
	I int64
	U uint64
	F float64
	P *string
	M map[string]any
	L []string
}

func FuzzJSONRoundTrip(f *testing.F) {
	f.Add("a\x00\u2028<é😀", []byte{0, 255}, int64(math.MinInt64), uint64(math.MaxUint64), 0.1, `{"b":[1.0,"\/"]}`)
	f.Add("\xff", []byte(nil), int64(0), uint64(0), math.Inf(1), `1e400`)
	f.Add("\ufffd", []byte{}, int64(1), uint64(1), math.Copysign(0, -1), `{"a":1,"a":2}`)
	f.Fuzz(func(t *testing.T, s string, b []byte, i int64, u uint64, fl float64, text string) {
		in := fuzzed{s, b, i, u, fl, &s, map[string]any{s: s, "i": json.Number(fmt.Sprint(i))}, []string{s}}
		valid := strings.ToValidUTF8(s, "") == s && !math.IsNaN(fl) && !math.IsInf(fl, 0)
		data, err := JSON{}.Encode(in, nil)
		if (err == nil) != valid {
			t.Fatalf("Encode(%+v): %v, valid = %v", in, err, valid)
		}
		if err == nil {
			var out fuzzed
			if err := (JSON{}).Decode(data, 1, &out, nil); err != nil {
				t.Fatalf("Decode(%s): %v", data, errors.Unwrap(err))
			}
			if diff := cmp.Diff(in, out); diff != "" {
				t.Fatalf("mismatch (-want +got):\n%s", diff)
			}
		}

		// Whatever is stored, Decode does not panic, and what it reads it can write.
		var v any
		if err := (JSON{}).Decode([]byte(text), 1, &v, nil); err == nil {
			var again any
			roundTrip(t, JSON{}, v, &again)
			if diff := cmp.Diff(v, again); diff != "" {
				t.Fatalf("mismatch (-want +got):\n%s", diff)
			}
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	in := newReceipt()
	data, err := JSON{}.Encode(&in, nil)
	if err != nil {
		b.Fatal(err)
	}
	size := fmt.Sprintf(" %d bytes", len(data))
	b.Run("Encode"+size, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := (JSON{}).Encode(&in, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Decode"+size, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var out receipt
			if err := (JSON{}).Decode(data, 1, &out, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
