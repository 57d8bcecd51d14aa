package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
)

func TestBadOptionsTouchNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		opt  idem.Option
	}{
		{"nil", nil},
		{"a nil among options", idem.Options(idem.WithDetached(), nil)},
		{"a bad one among options", idem.Options(idem.Options(idem.WithLease(-1)))},
		{"no lease", idem.WithLease(0)},
		{"a negative lease", idem.WithLease(-time.Second)},
		{"no retention", idem.WithRetention(0)},
		{"a negative retention", idem.WithRetention(-1)},
		{"a negative wait", idem.WithWait(-1)},
		{"an unknown stale policy", idem.WithStale(2)},
		{"a negative stale policy", idem.WithStale(-1)},
		{"no disposition", idem.WithDisposition(nil)},
		{"an error without a code", idem.WithErrors(map[string]error{"": errBusiness})},
		{"a code without an error", idem.WithErrors(map[string]error{"code": nil})},
		{"a code with a NUL", idem.WithErrors(map[string]error{"a\x00": errBusiness})},
		{"a code that is not UTF-8", idem.WithErrors(map[string]error{"\xff": errBusiness})},
		{"a code that is too long", idem.WithErrors(map[string]error{strings.Repeat("c", 256): errBusiness})},
		{"no codec", idem.WithCodec(nil)},
		{"a codec without a name", idem.WithCodec(nameless{})},
		{"a codec of a negative version", idem.WithCodec(versioned(-1))},
		{"a codec of too high a version", idem.WithCodec(versioned(1 << 40))},
		{"no room for a result", idem.WithMaxResultBytes(0)},
		{"negative room for a result", idem.WithMaxResultBytes(-1)},
		{"an empty hash key", idem.WithHashKey(nil)},
		{"an empty previous hash key", idem.WithHashKey([]byte("k"), nil)},
		{"no observer", idem.WithObserver(nil)},
		{"no store timeout", idem.WithStoreTimeout(0)},
		{"a negative store timeout", idem.WithStoreTimeout(-1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns("v", 200, nil)
			opts := []idem.Option{idem.WithLease(time.Second), tt.opt, idem.WithLease(time.Second)}
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
			wantErr(t, err, idem.ErrInvalidOption)
			_, err = idem.PayloadHash(payload, opts...)
			wantErr(t, err, idem.ErrInvalidOption)
			wantErr(t, idem.RunPurge(t.Context(), s, time.Second, opts...), idem.ErrInvalidOption)
			w.wantRuns(t, 0)
			s.wantCalls(t)
		})
	}
}

type nameless struct{ codec.JSON }

func (nameless) Name() string { return "" }

type versioned int

func (versioned) Name() string                          { return "versioned" }
func (v versioned) Version() int                        { return int(v) }
func (versioned) Encode(any, []byte) ([]byte, error)    { return nil, nil }
func (versioned) Decode([]byte, int, any, []byte) error { return nil }

func TestMissingArgumentsAreOptionErrors(t *testing.T) {
	t.Parallel()
	t.Run("no store", func(t *testing.T) {
		t.Parallel()
		w := returns("v", 200, nil)
		_, err := idem.Do(t.Context(), nil, testKey, payload, w.fn)
		wantErr(t, err, idem.ErrInvalidOption)
		_, err = idem.Peek(t.Context(), nil, testKey, payload)
		wantErr(t, err, idem.ErrInvalidOption)
		_, err = idem.Resolve(t.Context(), nil, testKey, w.fn)
		wantErr(t, err, idem.ErrInvalidOption)
		wantErr(t, idem.RunPurge(t.Context(), nil, time.Second), idem.ErrInvalidOption)
		w.wantRuns(t, 0)
	})
	t.Run("no closure", func(t *testing.T) {
		t.Parallel()
		s := newSpy()
		var fn func(context.Context) (string, idem.Status, error)
		_, err := idem.Do(t.Context(), s, testKey, payload, fn)
		wantErr(t, err, idem.ErrInvalidOption)
		_, err = idem.Resolve(t.Context(), s, testKey, fn)
		wantErr(t, err, idem.ErrInvalidOption)
		s.wantCalls(t)
	})
}

func TestOptionsCompose(t *testing.T) {
	t.Parallel()
	defaults := idem.Options(
		idem.WithLease(time.Hour),
		idem.Options(idem.WithRetention(48*time.Hour), idem.WithHashKey([]byte("k"))),
	)
	for _, tt := range []struct {
		name string
		opts []idem.Option
		want time.Duration
	}{
		{"defaults count", []idem.Option{defaults}, time.Hour},
		{"the later one wins", []idem.Option{defaults, idem.WithLease(time.Minute)}, time.Minute},
		{"also when it is the composed one", []idem.Option{idem.WithLease(time.Minute), defaults}, time.Hour},
		{"none at all", []idem.Option{idem.Options()}, idem.DefaultLease},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s := newSpy()
			abandon(t, s, testKey, payload, tt.opts...)
			if got := record(t, s).LeaseLeft; got != tt.want {
				t.Errorf("lease %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	synctestRun(t, "lease and retention", func(t *testing.T) {
		s := newSpy()
		abandon(t, s, testKey, payload)
		rec := record(t, s)
		if rec.LeaseLeft != time.Minute {
			t.Errorf("lease %v, want a minute", rec.LeaseLeft)
		}
		if want := time.Now().Add(time.Minute + 14*24*time.Hour); !rec.ExpiresAt.Equal(want) {
			t.Errorf("an abandoned claim expires at %v, want lease + 14 days: %v", rec.ExpiresAt, want)
		}
		pass(time.Minute)
		res, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 0, nil).fn)
		wantErr(t, err)
		if got := res.ExpiresAt.Sub(res.CompletedAt); got != 14*24*time.Hour {
			t.Errorf("retention %v, want 14 days", got)
		}
	})
}

type publicError struct{ secret, message string }

func (e publicError) Error() string         { return e.secret }
func (e publicError) PublicMessage() string { return e.message }

var (
	errGeneral  = errors.New("payment failed")
	errSpecific = fmt.Errorf("card declined: %w", errGeneral)
)

func TestWithErrors(t *testing.T) {
	t.Parallel()
	codes := map[string]error{"a_general": errGeneral, "z_specific": errSpecific, "other": errBusiness}
	for _, tt := range []struct {
		name    string
		err     error
		codes   map[string]error
		code    string
		message string
		is      []error
		isNot   []error
	}{
		{"a registered error", errBusiness, codes, "other", "", []error{errBusiness}, []error{errGeneral}},
		{"wrapped", fmt.Errorf("order 7: %w", errBusiness), codes, "other", "", []error{errBusiness}, nil},
		{"joined", errors.Join(errStore, errBusiness), codes, "other", "", []error{errBusiness}, []error{errStore}},
		{"the most specific one counts", errSpecific, codes, "z_specific", "", []error{errSpecific, errGeneral}, nil},
		{"the general one, if it is no more", errGeneral, codes, "a_general", "", []error{errGeneral}, []error{errSpecific}},
		{"of equals the first by code", errors.Join(errBusiness, errGeneral), codes, "a_general", "", []error{errGeneral}, []error{errBusiness}},
		{"one error under two codes", errBusiness, map[string]error{"b": errBusiness, "a": errBusiness}, "a", "", []error{errBusiness}, nil},
		{"not registered", errStore, codes, "", "", nil, []error{errStore, errBusiness}},
		{"a public message", publicError{"secret", "sorry"}, codes, "", "sorry", nil, nil},
		{"a public message within another error", fmt.Errorf("internal: %w", publicError{"secret", "sorry"}), codes, "", "sorry", nil, nil},
		{"a code and a public message", errors.Join(errBusiness, publicError{"secret", "sorry"}), codes, "other", "sorry", []error{errBusiness}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for range 10 { // the order of a map is another one each time
				s, w := newSpy(), returns("v", 409, tt.err)
				opt := idem.WithErrors(tt.codes)
				_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opt)
				if err.Error() != tt.err.Error() {
					t.Errorf("err = %v, want the closure's own", err)
				}
				_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, opt)
				recorded, ok := errors.AsType[*idem.RecordedError](err)
				if !ok {
					t.Fatalf("err = %v, want a RecordedError", err)
				}
				if recorded.Code != tt.code || recorded.Message != tt.message || recorded.Status != 409 {
					t.Errorf("code %q, message %q, status %d, want %q, %q, 409", recorded.Code, recorded.Message, recorded.Status, tt.code, tt.message)
				}
				for _, target := range tt.is {
					wantErr(t, err, target)
				}
				notErr(t, err, tt.isNot...)
				w.wantRuns(t, 1)
			}
		})
	}
}

// A process that does not know a code replays it all the same.
func TestCodeThatIsNotRegisteredHere(t *testing.T) {
	t.Parallel()
	s := newSpy()
	_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 409, errBusiness).fn, idem.WithErrors(map[string]error{"oos": errBusiness}))
	wantErr(t, err, errBusiness)
	res, err := idem.Do(t.Context(), s, testKey, payload, returns("", 200, nil).fn)
	if recorded, ok := errors.AsType[*idem.RecordedError](err); !ok || recorded.Code != "oos" {
		t.Errorf("err = %v, want code oos", err)
	}
	notErr(t, err, errBusiness)
	wantResult(t, res, "v", 409, true)
}

// fn has run: its error's message must not stand in the way of the record.
func TestPublicMessageIsMadeOneThatAnyStoreCanKeep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"a NUL", publicError{"secret", "a\x00b"}, "a\uFFFDb"},
		{"invalid UTF-8", publicError{"secret", "a\xffb"}, "a\uFFFDb"},
		{"too long", publicError{"secret", strings.Repeat("é", 5000)}, strings.Repeat("é", 1000)},
		{"a panic", (*panickingError)(nil), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns("v", 409, tt.err)
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
			wantErr(t, err, tt.err)
			_, err = idem.Do(t.Context(), s, testKey, payload, w.fn)
			if recorded, ok := errors.AsType[*idem.RecordedError](err); !ok || recorded.Message != tt.want {
				t.Errorf("err = %v, want the message %q", err, tt.want)
			}
			w.wantRuns(t, 1)
		})
	}
}

type panickingError struct{ message string }

func (*panickingError) Error() string           { return "panicking" }
func (e *panickingError) PublicMessage() string { return e.message }
