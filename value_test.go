package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("marshal-secret") }

type cyclic struct{ Next *cyclic }

type shape interface{ Area() float64 }

type square struct{ Side float64 }

func (s square) Area() float64 { return s.Side * s.Side }

// twice runs Do two times and compares what the two callers see, types
// included.
func twice[T any](want func(T) string) func(*testing.T, T) {
	return func(t *testing.T, v T) {
		t.Helper()
		s, w := newSpy(), returns(v, 200, nil)
		first, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
		replay, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
		w.wantRuns(t, 1)
		if diff := cmp.Diff(first.Value, replay.Value); diff != "" {
			t.Errorf("first and replayed value (-first +replay):\n%s", diff)
		}
		for _, got := range []T{first.Value, replay.Value} {
			if diff := cmp.Diff(want(v), want(got)); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		}
	}
}

func digits[T any](v T) string { return fmt.Sprint(v) }

func TestB73IntegersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	const id = 4244637855813302974
	t.Run("any", func(t *testing.T) {
		t.Parallel()
		for _, v := range []any{int64(id), int64(math.MaxInt64), uint64(math.MaxUint64), int64(math.MinInt64), json.Number("9007199254740993"), 0.1, "s", nil, true} {
			twice(digits[any])(t, v)
		}
	})
	t.Run("map", func(t *testing.T) {
		t.Parallel()
		twice(digits[map[string]any])(t, map[string]any{"a": int64(id), "b": uint64(math.MaxUint64), "c": []any{int64(math.MaxInt64)}})
	})
	t.Run("slice of any", func(t *testing.T) {
		t.Parallel()
		twice(digits[[]any])(t, []any{id, math.MaxInt64})
	})
	t.Run("interface deep inside", func(t *testing.T) {
		t.Parallel()
		type inner struct{ V any }
		type outer struct{ P *[]map[string]inner }
		twice(func(o outer) string { return fmt.Sprint((*o.P)[0]["a"].V) })(t, outer{&[]map[string]inner{{"a": {int64(id)}}}})
	})
	t.Run("raw message", func(t *testing.T) {
		t.Parallel()
		twice(func(m json.RawMessage) string { return string(m) })(t, json.RawMessage(`{"id":4244637855813302974,"max":18446744073709551615}`))
	})
	t.Run("struct", func(t *testing.T) {
		t.Parallel()
		type s struct {
			ID  int64
			Max uint64
			F   float64
		}
		twice(digits[s])(t, s{id, math.MaxUint64, math.MaxFloat64})
		twice(digits[s])(t, s{math.MinInt64, 0, math.SmallestNonzeroFloat64})
	})
}

func TestZeroValuesAreValues(t *testing.T) {
	t.Parallel()
	twice(digits[int])(t, 0)
	twice(digits[string])(t, "")
	twice(digits[bool])(t, false)
	twice(digits[[]byte])(t, []byte{0, 1, 255})
	twice(digits[struct{}])(t, struct{}{})
	twice(digits[*int])(t, nil)
	twice(digits[[]string])(t, nil)
	twice(digits[[]string])(t, []string{})
	twice(digits[map[string]int])(t, map[string]int{})
	twice(digits[string])(t, "a\x00b\u2028<é")
}

func TestB75ValueThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	type float struct{ F float64 }
	loop := &cyclic{}
	loop.Next = loop
	t.Run("NaN", notEncodable(float{math.NaN()}))
	t.Run("+Inf", notEncodable(float{math.Inf(1)}))
	t.Run("a channel", notEncodable(struct{ C chan int }{make(chan int)}))
	t.Run("a function in an interface", notEncodable[any](func() {}))
	t.Run("a cycle", notEncodable(loop))
	t.Run("MarshalJSON panics", notEncodable(panicking{}))
	t.Run("invalid UTF-8", notEncodable("\xff"))
	t.Run("it encodes but does not decode", notEncodable[shape](square{2}))
	t.Run("a codec that fails", notEncodable("v", idem.WithCodec(brokenCodec{err: errStore})))
	t.Run("a codec that panics", notEncodable("v", idem.WithCodec(brokenCodec{})))
}

// notEncodable checks that a value that cannot be kept is its caller's, that
// the work counts as done, and that it is never done again.
func notEncodable[T any](v T, opts ...idem.Option) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		synctestRun(t, "success", func(t *testing.T) {
			s, w, events := newSpy(), returns(v, 201, nil), &recorder{}
			opts := append(opts, idem.WithLease(lease), events.option())
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
			wantErr(t, err, idem.ErrNotRecorded)
			if res.Status != 201 || res.Replayed {
				t.Errorf("first: status %d, replayed %v", res.Status, res.Replayed)
			}
			events.wantKinds(t, idem.EventExecuted, idem.EventNotRecorded)
			for _, later := range []time.Duration{0, lease, 10 * lease} {
				pass(later)
				res, err = idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
				wantErr(t, err, idem.ErrResultNotKept)
				if res.Status != 201 || !res.Replayed {
					t.Errorf("replay: status %d, replayed %v", res.Status, res.Replayed)
				}
			}
			w.wantRuns(t, 1)
		})
		synctestRun(t, "failure", func(t *testing.T) {
			s, w := newSpy(), returns(v, 409, errBusiness)
			opts := append(opts, idem.WithErrors(map[string]error{"oos": errBusiness}))
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
			wantErr(t, err, idem.ErrNotRecorded, errBusiness)
			_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
			wantErr(t, err, idem.ErrResultNotKept, errBusiness)
			w.wantRuns(t, 1)
		})
	}
}

// A brokenCodec fails to encode, or panics if it has no error to fail with.
type brokenCodec struct{ err error }

func (brokenCodec) Name() string { return "broken" }
func (brokenCodec) Version() int { return 1 }
func (c brokenCodec) Encode(any, []byte) ([]byte, error) {
	if c.err == nil {
		panic("broken")
	}
	return nil, c.err
}

func (c brokenCodec) Decode([]byte, int, any, []byte) error {
	if c.err == nil {
		panic("broken")
	}
	return c.err
}

func TestFirstCallerKeepsAValueThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	type float struct{ F float64 }
	res, err := idem.Do(t.Context(), newSpy(), testKey, payload, returns(float{math.Inf(1)}, 0, nil).fn)
	wantErr(t, err, idem.ErrNotRecorded)
	wantResult(t, res, float{math.Inf(1)}, 200, false)
}

func TestB83TypedResultOfExactlyAndJustOverTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	for _, tt := range []struct {
		name string
		size int // encoded: two quotes more than the string
		kept bool
	}{
		{"exactly the limit is kept", limit, true},
		{"one byte more is not", limit + 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := strings.Repeat("x", tt.size-2)
			s, w := newSpy(), returns(v, 201, nil)
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithMaxResultBytes(limit))
			wantResult(t, res, v, 201, false)
			replay, again := idem.Do(t.Context(), s, testKey, payload, w.fn)
			if tt.kept {
				wantErr(t, errors.Join(err, again))
				wantResult(t, replay, v, 201, true)
			} else {
				wantErr(t, err, idem.ErrNotRecorded)
				wantErr(t, again, idem.ErrResultNotKept)
				wantResult(t, replay, "", 201, true)
				if body := record(t, s).Response.Body; body != nil {
					t.Errorf("%d bytes are stored", len(body))
				}
			}
			w.wantRuns(t, 1)
		})
	}
}

func TestStoredValueThatNoLongerDecodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		opts []idem.Option
	}{
		{"T changed", nil},
		{"another codec", []idem.Option{idem.WithCodec(brokenCodec{err: errStore})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, events, w := newSpy(), &recorder{}, returns(0, 200, nil)
			_, err := idem.Do(t.Context(), s, testKey, payload, returns("text", 200, nil).fn)
			wantErr(t, err)
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, append(tt.opts, events.option())...)
			wantErr(t, err, idem.ErrCorruptRecord)
			decode, ok := errors.AsType[*idem.DecodeError](err)
			if !ok || decode.Codec != "json" || decode.Version != 1 || decode.Err == nil {
				t.Errorf("err = %#v, want a DecodeError of codec json, version 1", err)
			}
			if diff := cmp.Diff(idem.Result[int]{}, res); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			w.wantRuns(t, 0)
			events.wantKinds(t, idem.EventCorrupt)
		})
	}
}

func TestDecodeThatPanicsIsAnError(t *testing.T) {
	t.Parallel()
	s := newSpy()
	_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn, idem.WithCodec(half{}))
	wantErr(t, err)
	_, err = idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn, idem.WithCodec(half{}))
	wantErr(t, err, idem.ErrCorruptRecord)
}

// half is a codec that encodes to nothing and panics when it decodes.
type half struct{ brokenCodec }

func (half) Encode(any, []byte) ([]byte, error) { return nil, nil }

// A codec may encode a value as nothing: that is an answer, too.
func TestValueThatEncodesToNothing(t *testing.T) {
	t.Parallel()
	s, w := newSpy(), returns(struct{}{}, 204, nil)
	for _, replayed := range []bool{false, true} {
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithCodec(nothing{}))
		wantErr(t, err)
		wantResult(t, res, struct{}{}, 204, replayed)
	}
	w.wantRuns(t, 1)
}

type nothing struct{ half }

func (nothing) Decode([]byte, int, any, []byte) error { return nil }

// The codec gets associated data that no other key shares.
func TestAssociatedDataIsDifferentForEveryKey(t *testing.T) {
	t.Parallel()
	keys := []idem.Key{
		{User: "a", Scope: "b:c", Key: "d"}, {User: "a:b", Scope: "c", Key: "d"}, {User: "a", Scope: "b", Key: "c:d"},
		{User: "ab", Scope: "c", Key: "d"}, {User: "a", Scope: "bc", Key: "d"}, {User: "a", Scope: "b", Key: "cd"},
		{User: idem.NoUser, Scope: "b", Key: "cd"}, {User: "\x01b", Scope: "b", Key: "cd"},
	}
	seen := map[string]idem.Key{}
	for _, key := range keys {
		cd := &aadCodec{}
		_, err := idem.Do(t.Context(), newSpy(), key, payload, returns("v", 200, nil).fn, idem.WithCodec(cd))
		if errors.Is(err, idem.ErrInvalidKey) {
			continue
		}
		wantErr(t, err)
		if other, ok := seen[cd.aad]; ok {
			t.Errorf("%+v and %+v share their associated data", key, other)
		}
		seen[cd.aad] = key
	}
}

type aadCodec struct{ aad string }

func (*aadCodec) Name() string { return "aad" }
func (*aadCodec) Version() int { return 1 }
func (c *aadCodec) Encode(_ any, aad []byte) ([]byte, error) {
	c.aad = string(aad)
	return []byte{}, nil
}
func (*aadCodec) Decode([]byte, int, any, []byte) error { return nil }

func TestB15RecordThatCannotBeUnderstood(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*idem.Record)
	}{
		{"an unknown state", func(r *idem.Record) { r.State = "bogus" }},
		{"no state", func(r *idem.Record) { r.State = "" }},
		{"done without a result", func(r *idem.Record) { r.Response.Body = nil }},
		{"done without a time", func(r *idem.Record) { r.CompletedAt = time.Time{} }},
		{"truncated JSON", func(r *idem.Record) { r.Response.Body = r.Response.Body[:3] }},
		{"empty JSON", func(r *idem.Record) { r.Response.Body = []byte{} }},
		{"an unknown codec", func(r *idem.Record) { r.Response.Codec = "gob" }},
		{"a later version of the codec", func(r *idem.Record) { r.Response.CodecVersion = 99 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w, events := newSpy(), returns("value", 200, nil), &recorder{}
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
			wantErr(t, err)
			s.onClaim = func(_ context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
				rec, err := next()
				tt.change(&rec)
				return rec, err
			}
			for range 2 {
				res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, events.option())
				wantErr(t, err, idem.ErrCorruptRecord)
				notErr(t, err, idem.ErrUnavailable)
				wantResult(t, res, "", 0, false)
			}
			w.wantRuns(t, 1)
			events.wantKinds(t, idem.EventCorrupt, idem.EventCorrupt)
		})
	}
	t.Run("the store says so", func(t *testing.T) {
		t.Parallel()
		s, w := newSpy(), returns("value", 200, nil)
		s.onClaim = func(context.Context, idem.ClaimRequest, func() (idem.Record, error)) (idem.Record, error) {
			return idem.Record{}, fmt.Errorf("column status: %w", idem.ErrCorruptRecord)
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err, idem.ErrCorruptRecord)
		w.wantRuns(t, 0)
		s.wantCalls(t, "claim")
	})
}
