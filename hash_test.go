package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

func hash(t *testing.T, payload any, opts ...idem.Option) string {
	t.Helper()
	h, err := idem.PayloadHash(payload, opts...)
	if err != nil {
		t.Fatalf("PayloadHash(%v): %v", payload, err)
	}
	return h
}

func TestPayloadHashIs64LowerCaseHexDigits(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{64}$`)
	for _, payload := range []any{nil, "", 1, struct{}{}, []byte(nil), []byte("x"), json.RawMessage(`{}`), map[string]any{}} {
		if h := hash(t, payload); !form.MatchString(h) {
			t.Errorf("%#v: %q", payload, h)
		}
	}
}

// Pairs of payloads through Do: equal ones replay, different ones mismatch.
func TestB63B65PayloadPairs(t *testing.T) {
	t.Parallel()
	type abc struct {
		A int `json:"a"`
		B struct {
			C int `json:"c"`
			D int `json:"d"`
		} `json:"b"`
	}
	type bac struct {
		B struct {
			D int `json:"d"`
			C int `json:"c"`
		} `json:"b"`
		A int `json:"a"`
	}
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	var x abc
	x.A, x.B.C, x.B.D = 1, 2, 3
	var y bac
	y.A, y.B.C, y.B.D = 1, 2, 3
	asMap := map[string]any{"b": map[string]any{"d": 3, "c": 2}, "a": 1}

	for _, tt := range []struct {
		name  string
		a, b  any
		equal bool
	}{
		{"B63 struct and map", x, asMap, true},
		{"B63 struct with swapped fields", x, y, true},
		{"B63 pointer", x, &x, true},
		{"B63 raw JSON in another order", raw(`{"a":1,"b":{"c":2,"d":3}}`), raw(`{"b":{"d":3,"c":2},"a":1}`), true},
		{"B63 raw JSON with spaces", x, raw(" {\"b\" : {\"d\":3,\n\"c\":2},\t\"a\": 1} "), true},
		{"B63 raw bytes in another order", []byte(`{"a":1,"b":2}`), []byte(`{"b":2,"a":1}`), false},
		{"B63 raw bytes and raw JSON", []byte(`{"a":1}`), raw(`{"a":1}`), false},
		{"B65 null and absent", raw(`{"a":null}`), raw(`{}`), false},
		{"B65 1 and 1.0", raw(`1`), raw(`1.0`), true},
		{"B65 1 and 1e0", raw(`1`), raw(`1e0`), true},
		{"B65 100 and 1E2", raw(`100`), raw(`1E2`), true},
		{"B65 escaped letter", raw(`"\u00e9"`), raw(`"é"`), true},
		{"B65 composed and decomposed letter", "\u00e9", "e\u0301", false},
		{"B65 escaped bracket", raw(`"<"`), raw(`"\u003c"`), true},
		{"B65 -0 and 0", raw(`-0`), raw(`0`), true},
		{"B65 two big integers", raw(`9007199254740993`), raw(`9007199254740992`), false},
		{"B65 two long decimals", raw(`12345678901234567.89`), raw(`12345678901234567.12`), false},
		{"B65 two huge numbers", raw(`1e400`), raw(`1e401`), false},
		{"B65 two tiny numbers", raw(`1e-400`), raw(`0`), false},
		{"B65 true and a string", raw(`true`), raw(`"true"`), false},
		{"B65 1 and a string", 1, "1", false},
		{"list order", []int{1, 2}, []int{2, 1}, false},
		{"nil and empty list", []int(nil), []int{}, false},
		{"nil and null", nil, raw(`null`), true},
		{"integer types", int64(7), uint8(7), true},
		{"an integer and a float", 7, 7.0, true},
		{"upper-case names", raw(`{"a":1}`), raw(`{"A":1}`), false},
		{"nested and flat", raw(`{"a":{"b":1}}`), raw(`{"a":1,"b":1}`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := hash(t, tt.a) == hash(t, tt.b); got != tt.equal {
				t.Errorf("hashes are equal: %v, want %v", got, tt.equal)
			}
			s, w := newSpy(), returns("v", 200, nil)
			_, err := idem.Do(t.Context(), s, testKey, tt.a, w.fn)
			wantErr(t, err)
			res, err := idem.Do(t.Context(), s, testKey, tt.b, w.fn)
			if tt.equal {
				wantErr(t, err)
				wantResult(t, res, "v", 200, true)
			} else {
				wantErr(t, err, idem.ErrPayloadMismatch)
			}
			w.wantRuns(t, 1)
		})
	}
}

func TestPayloadThatCannotBeHashedTouchesNothing(t *testing.T) {
	t.Parallel()
	loop := &cyclic{}
	loop.Next = loop
	for _, tt := range []struct {
		name    string
		payload any
	}{
		{"a channel", make(chan int)},
		{"a cycle", loop},
		{"MarshalJSON panics", panicking{}},
		{"broken JSON", json.RawMessage(`{"a":`)},
		{"a repeated name", json.RawMessage(`{"a":1,"a":2}`)},
		{"two values", json.RawMessage(`1 2`)},
		{"invalid UTF-8", "\xff"},
		{"no visible field", struct{ hidden int }{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns("v", 200, nil)
			_, err := idem.PayloadHash(tt.payload)
			wantErr(t, err, idem.ErrInvalidPayload)
			_, err = idem.Do(t.Context(), s, testKey, tt.payload, w.fn)
			wantErr(t, err, idem.ErrInvalidPayload)
			_, err = idem.Peek(t.Context(), s, testKey, tt.payload)
			wantErr(t, err, idem.ErrInvalidPayload)
			w.wantRuns(t, 0)
			s.wantCalls(t)
		})
	}
}

// The payload is hashed before fn runs: what fn does to it does not count.
func TestPayloadIsHashedBeforeTheClosureRuns(t *testing.T) {
	t.Parallel()
	s, p := newSpy(), map[string]int{"a": 1}
	_, err := idem.Do(t.Context(), s, testKey, p, func(context.Context) (string, idem.Status, error) {
		p["a"] = 2
		return "v", 200, nil
	})
	wantErr(t, err)
	res, err := idem.Do(t.Context(), s, testKey, map[string]int{"a": 1}, returns("", 200, nil).fn)
	wantErr(t, err)
	wantResult(t, res, "v", 200, true)
}

// fixtureHash is what version 1 of the hash made of fixturePayload: written out,
// so that a change of the algorithm without a new version fails here.
//
//	printf 'idem/1 json\n{"amount":12.5,"currency":"EUR","items":["é","<b>"]}' | sha256sum
const fixtureHash = "9015b5b2fc372e2a3481dc0038e7eb2030002ab7035aac8396601dfd4291c05c"

var fixturePayload = map[string]any{"amount": json.Number("12.50"), "currency": "EUR", "items": []string{"é", "<b>"}}

func storeFixture(t *testing.T, s idem.Store, h idem.Hash) {
	t.Helper()
	key, err := testKey.Normalize()
	wantErr(t, err)
	token := idem.ID{1}
	_, err = s.Claim(t.Context(), idem.ClaimRequest{
		Key: key, Hash: h, Token: token, ExecutionID: idem.ID{2}, Lease: idem.DefaultLease, Retention: idem.DefaultRetention,
	})
	wantErr(t, err)
	_, err = s.Complete(t.Context(), idem.CompleteRequest{
		Key: key, Token: token, State: idem.Succeeded, Retention: idem.DefaultRetention,
		Response: idem.Response{Status: 201, Codec: "json", CodecVersion: 1, Body: []byte(`"stored"`)},
	})
	wantErr(t, err)
}

func TestB71RecordOfAnotherHashVersion(t *testing.T) {
	t.Parallel()
	t.Run("of version 1 is compared", func(t *testing.T) {
		t.Parallel()
		s, w := newSpy(), returns("w", 200, nil)
		storeFixture(t, s, idem.Hash{Version: 1, Sum: fixtureHash})
		res, err := idem.Do(t.Context(), s, testKey, fixturePayload, w.fn)
		wantErr(t, err)
		wantResult(t, res, "stored", 201, true)
		_, err = idem.Do(t.Context(), s, testKey, otherPayload, w.fn)
		wantErr(t, err, idem.ErrPayloadMismatch)
		w.wantRuns(t, 0)
	})
	t.Run("of a later version is a retryable error", func(t *testing.T) {
		t.Parallel()
		s, w, events := newSpy(), returns("w", 200, nil), &recorder{}
		storeFixture(t, s, idem.Hash{Version: 99, Sum: fixtureHash})
		_, err := idem.Do(t.Context(), s, testKey, fixturePayload, w.fn, events.option())
		wantErr(t, err, idem.ErrUnavailable)
		notErr(t, err, idem.ErrPayloadMismatch, idem.ErrCorruptRecord)
		_, err = idem.Peek(t.Context(), s, testKey, fixturePayload, events.option())
		wantErr(t, err, idem.ErrUnavailable)
		w.wantRuns(t, 0)
		events.wantKinds(t, idem.EventUnavailable, idem.EventUnavailable)
	})
}

func TestB71HashKeysOverADeploy(t *testing.T) {
	t.Parallel()
	oldKey, newKey, otherKey := []byte("old key"), []byte("new key"), []byte("other key")
	for _, tt := range []struct {
		name          string
		before, after []idem.Option
		err           error // of an honest retry; a changed payload is refused anyway
		other         error // of a changed payload
	}{
		{"the first key", nil, []idem.Option{idem.WithHashKey(newKey)}, nil, idem.ErrPayloadMismatch},
		{"the same key", []idem.Option{idem.WithHashKey(oldKey)}, []idem.Option{idem.WithHashKey(oldKey)}, nil, idem.ErrPayloadMismatch},
		{"a new key", []idem.Option{idem.WithHashKey(oldKey)}, []idem.Option{idem.WithHashKey(newKey, oldKey)}, nil, idem.ErrPayloadMismatch},
		{"two new keys", []idem.Option{idem.WithHashKey(oldKey)}, []idem.Option{idem.WithHashKey(newKey, otherKey, oldKey)}, nil, idem.ErrPayloadMismatch},
		{"a process that has not switched yet", []idem.Option{idem.WithHashKey(newKey, oldKey)}, []idem.Option{idem.WithHashKey(oldKey, newKey)}, nil, idem.ErrPayloadMismatch},
		{"a process that has no key cannot tell", []idem.Option{idem.WithHashKey(oldKey)}, nil, idem.ErrUnavailable, idem.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns("v", 200, nil)
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, tt.before...)
			wantErr(t, err)
			_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, tt.after...)
			wantErr(t, err, targets(tt.err)...)
			_, err = idem.Do(t.Context(), s, testKey, otherPayload, w.fn, tt.after...)
			wantErr(t, err, tt.other)
			w.wantRuns(t, 1)
		})
	}
}

func TestHashKeyHidesThePayload(t *testing.T) {
	t.Parallel()
	plain, keyed, rotated := hash(t, payload), hash(t, payload, idem.WithHashKey([]byte("a"))), hash(t, payload, idem.WithHashKey([]byte("b"), []byte("a")))
	if plain == keyed || keyed == rotated || plain == rotated {
		t.Error("hashes under different keys are equal")
	}
	s := newSpy()
	_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn, idem.WithHashKey([]byte("a")))
	wantErr(t, err)
	if got := record(t, s).Hash.Sum; got != keyed {
		t.Errorf("stored hash %v, want the keyed one", got)
	}
}

// A stale claim that is taken over keeps its execution id over a rotation.
func TestExecutionIDOutlastsAKeyRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		abandon(t, s, testKey, payload, idem.WithLease(lease))
		before := record(t, s).ExecutionID.String()
		pass(lease)
		res, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn, idem.WithHashKey([]byte("new")))
		wantErr(t, err)
		if res.ExecutionID != before {
			t.Errorf("execution id %v, want %v", res.ExecutionID, before)
		}
		if h := record(t, s).Hash; h.Sum != hash(t, payload, idem.WithHashKey([]byte("new"))) {
			t.Errorf("stored hash %+v, want the new owner's", h)
		}
	})
}

// Two documents hash alike exactly if they mean the same, as an independent
// reading of them says.
func FuzzPayloadHash(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":[1,2]}`, `{"b":[1.0,2e0],"a":10e-1}`},
		{`9007199254740993`, `9007199254740992`},
		{`"\u00e9<"`, `"é\u003c"`},
		{`[0.00001]`, `[1e-5]`},
		{`{"":null}`, `{}`},
		{`"\ud83d\ude00"`, `"😀"`},
		{`-0.0`, `0`},
		{`[[],{}]`, ` [ [ ] , { } ] `},
		{`1e21`, `1000000000000000000000`},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		hashA, errA := idem.PayloadHash(json.RawMessage(a))
		hashB, errB := idem.PayloadHash(json.RawMessage(b))
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, idem.ErrInvalidPayload) {
				t.Errorf("err = %v, want ErrInvalidPayload", err)
			}
		}
		meaningA, ok := meaning(a)
		if errA != nil || !ok {
			return
		}
		// Written anew by encoding/json, it means the same.
		again, err := json.Marshal(decoded(a))
		if err != nil {
			t.Fatal(err)
		}
		if hash(t, json.RawMessage(again)) != hashA {
			t.Errorf("%q and %q hash differently", a, again)
		}
		if raw := hash(t, a); raw == hashA {
			t.Errorf("%q hashes alike as bytes and as JSON", a)
		}
		meaningB, ok := meaning(b)
		if errB != nil || !ok {
			return
		}
		if equal := cmp.Equal(meaningA, meaningB); equal != (hashA == hashB) {
			t.Errorf("%q and %q: equal %v, hashes equal %v", a, b, equal, hashA == hashB)
		}
	})
}

func decoded(text []byte) (v any) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	_ = dec.Decode(&v)
	return v
}

// meaning reads text with encoding/json, its numbers as exact fractions. It
// reports false for what it cannot judge.
func meaning(text []byte) (any, bool) {
	if !json.Valid(text) {
		return nil, false
	}
	judged := true
	var exact func(any) any
	exact = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			if i := strings.IndexAny(string(v), "eE"); i >= 0 && len(v)-i > 5 {
				judged = false // too large a fraction
				return nil
			}
			r, ok := new(big.Rat).SetString(string(v))
			judged = judged && ok
			return "number " + r.RatString()
		case string:
			return "string " + v
		case []any:
			for i := range v {
				v[i] = exact(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = exact(v[name])
			}
		}
		return v
	}
	v := exact(decoded(text))
	return v, judged
}
