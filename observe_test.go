package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

func TestEventsTellOfTheirRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, events := newSpy(), &recorder{}
		type contextKey struct{}
		ctx := context.WithValue(t.Context(), contextKey{}, "value")
		opts := []idem.Option{idem.WithLease(lease), idem.WithObserver(func(ctx context.Context, e idem.Event) {
			if ctx.Value(contextKey{}) != "value" {
				t.Error("the observer does not see the caller's context")
			}
			events.mu.Lock()
			defer events.mu.Unlock()
			events.events = append(events.events, e)
		})}
		_, err := idem.Do(ctx, s, testKey, payload, returns("", 0, idem.Unknown(nil)).fn, opts...)
		wantErr(t, err, idem.ErrOutcomeUnknown)
		pass(lease)
		res, err := idem.Do(ctx, s, testKey, payload, func(context.Context) (string, idem.Status, error) {
			pass(time.Second / 2)
			return "v", 201, nil
		}, opts...)
		wantErr(t, err)
		_, err = idem.Do(ctx, s, testKey, payload, returns("", 0, nil).fn, opts...)
		wantErr(t, err)
		id, scope := res.ExecutionID, testKey.Scope
		want := []idem.Event{
			{Kind: idem.EventExecuted, Scope: scope, ExecutionID: id, Attempt: 1, Disposition: idem.Hold},
			{Kind: idem.EventReclaimed, Scope: scope, ExecutionID: id, Attempt: 2},
			{Kind: idem.EventExecuted, Scope: scope, ExecutionID: id, Attempt: 2, Status: 201, Duration: time.Second / 2},
			{Kind: idem.EventReplayed, Scope: scope, ExecutionID: id, Attempt: 2, Status: 201},
		}
		if diff := cmp.Diff(want, events.all()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestLogEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		event idem.Event
		want  string
	}{
		{
			"an executed run", idem.Event{Kind: idem.EventExecuted, Scope: "s", ExecutionID: "id", Attempt: 2, Status: 201, Disposition: idem.Hold, Duration: time.Second},
			`level=DEBUG msg="idem: executed" scope=s execution_id=id attempt=2 status=201 disposition=hold duration=1s`,
		},
		{"a replay", idem.Event{Kind: idem.EventReplayed, Scope: "s", Status: 200}, `level=DEBUG msg="idem: replayed" scope=s status=200`},
		{"a lost lease", idem.Event{Kind: idem.EventLeaseLost}, `level=ERROR msg="idem: lease_lost"`},
		{"an outcome that was not recorded", idem.Event{Kind: idem.EventNotRecorded, Err: errStore}, `level=ERROR msg="idem: not_recorded" error="connection reset"`},
		{"a failed renewal", idem.Event{Kind: idem.EventRenewalFailed, Err: errStore}, `level=WARN msg="idem: renewal_failed" error="connection reset"`},
		{"a purge", idem.Event{Kind: idem.EventPurged, Purge: idem.PurgeResult{Deleted: 3, Overdue: time.Minute}}, `level=DEBUG msg="idem: purged" deleted=3 overdue=1m0s`},
		{"a scope that would forge a line", idem.Event{Kind: idem.EventMismatch, Scope: "a\u200f b"}, `level=WARN msg="idem: payload_mismatch" scope="a\u200f b"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime}))
			idem.LogEvents(log)(t.Context(), tt.event)
			if diff := cmp.Diff(tt.want+"\n", out.String()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func TestDispositionsHaveNames(t *testing.T) {
	t.Parallel()
	for d, want := range map[idem.Disposition]string{idem.Keep: "keep", idem.Release: "release", idem.Hold: "hold", 9: "invalid"} {
		if got := d.String(); got != want {
			t.Errorf("%d: %q, want %q", int(d), got, want)
		}
	}
}

// What nobody but the closure and its caller may see.
const (
	secretUser    = "user-5ecret"
	secretKey     = "key-5ecret"
	secretPayload = "payload-5ecret"
	secretValue   = "value-5ecret"
	secretText    = "internal-5ecret"
)

// secretive fails or panics with secrets in its words.
type secretive struct {
	Panic bool
	V     string
}

func (s secretive) MarshalJSON() ([]byte, error) {
	if s.Panic {
		panic(s.V)
	}
	return nil, errors.New(s.V)
}

type refusing struct{ V string }

func (*refusing) UnmarshalJSON(text []byte) error { return fmt.Errorf("cannot read %s", text) }

// No user, key, payload, value or internal error's text is ever in a message
// of idem, in an event or in a log, nor is an error's text in the record.
func TestNoSecretIsEverTold(t *testing.T) {
	t.Parallel()
	key := idem.Key{User: secretUser, Scope: "scope", Key: secretKey}
	internal := errors.New(secretText)
	type doing func(t *testing.T, s *spy, opts ...idem.Option) error

	do := func(payload any, v any, status idem.Status, err error) doing {
		return func(t *testing.T, s *spy, opts ...idem.Option) error {
			_, got := idem.Do(t.Context(), s, key, payload, returns(v, status, err).fn, opts...)
			return got
		}
	}
	decoding := func(t *testing.T, s *spy, opts ...idem.Option) error {
		_, err := idem.Do(t.Context(), s, key, secretPayload, returns(refusing{}, 200, nil).fn, opts...)
		return err
	}
	asInt := func(t *testing.T, s *spy, opts ...idem.Option) error {
		_, err := idem.Do(t.Context(), s, key, secretPayload, returns(0, 200, nil).fn, opts...)
		return err
	}
	ok := do(secretPayload, secretValue, 200, nil)

	for _, tt := range []struct {
		name  string
		steps []doing // the error of the last is looked at
		spoil func(*spy)
		opts  []idem.Option
	}{
		{name: "replay", steps: []doing{ok, ok}},
		{name: "mismatch", steps: []doing{ok, do("other", secretValue, 200, nil)}},
		{name: "in progress", steps: []doing{do(secretPayload, secretValue, 0, idem.Unknown(internal)), ok}},
		{name: "recorded failure", steps: []doing{do(secretPayload, secretValue, 409, internal), ok}},
		{name: "recorded failure with a code", steps: []doing{do(secretPayload, secretValue, 409, internal), ok}, opts: []idem.Option{idem.WithErrors(map[string]error{"code": internal})}},
		{name: "payload that does not encode", steps: []doing{do(secretive{V: secretPayload}, "", 200, nil)}},
		{name: "payload that panics", steps: []doing{do(secretive{Panic: true, V: secretPayload}, "", 200, nil)}},
		{name: "payload that is broken JSON", steps: []doing{do(json.RawMessage(`{"`+secretPayload+`":`), "", 200, nil)}},
		{name: "payload that repeats a name", steps: []doing{do(json.RawMessage(`{"`+secretPayload+`":1,"`+secretPayload+`":2}`), "", 200, nil)}},
		{name: "payload that is not UTF-8", steps: []doing{do(secretPayload+"\xff", "", 200, nil)}},
		{name: "value that does not encode", steps: []doing{do(secretPayload, secretive{V: secretValue}, 200, nil)}},
		{name: "value that panics", steps: []doing{do(secretPayload, secretive{Panic: true, V: secretValue}, 200, nil)}},
		{name: "value that is not UTF-8", steps: []doing{do(secretPayload, secretValue+"\xff", 200, nil)}},
		{name: "value that is too large", steps: []doing{ok}, opts: []idem.Option{idem.WithMaxResultBytes(1)}},
		{name: "codec that panics", steps: []doing{ok}, opts: []idem.Option{idem.WithCodec(panickingCodec{})}},
		{name: "value that does not fit T", steps: []doing{ok, asInt}},
		{name: "value that T refuses", steps: []doing{ok, decoding}},
		{
			name: "value that is broken", steps: []doing{ok, ok},
			spoil: func(s *spy) {
				s.onClaim = func(_ context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
					rec, err := next()
					rec.Response.Body = append(rec.Response.Body, '"')
					return rec, err
				}
			},
		},
		{
			name: "store that is down", steps: []doing{ok},
			spoil: func(s *spy) {
				s.onClaim = func(context.Context, idem.ClaimRequest, func() (idem.Record, error)) (idem.Record, error) {
					return idem.Record{}, idem.Permanent(errStore)
				}
			},
		},
		{
			name: "completion that fails", steps: []doing{ok},
			spoil: func(s *spy) {
				s.onComplete = func(context.Context, idem.CompleteRequest, func() (time.Time, error)) (time.Time, error) {
					return time.Time{}, idem.Permanent(errStore)
				}
			},
		},
		{name: "bad user", steps: []doing{func(t *testing.T, s *spy, opts ...idem.Option) error {
			_, err := idem.Peek(t.Context(), s, idem.Key{User: secretUser + "\x00", Scope: "s", Key: "k"}, 1, opts...)
			return err
		}}},
		{name: "bad key", steps: []doing{func(t *testing.T, s *spy, opts ...idem.Option) error {
			_, err := idem.Peek(t.Context(), s, idem.Key{User: "u", Scope: "s", Key: secretKey + "\xff"}, 1, opts...)
			return err
		}}},
		{name: "resolve", steps: []doing{ok, func(t *testing.T, s *spy, opts ...idem.Option) error {
			_, err := idem.Resolve(t.Context(), s, key, returns("", 200, nil).fn, opts...)
			return err
		}}},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			var told bytes.Buffer
			log := idem.LogEvents(slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelDebug})))
			s := newSpy()
			opts := append(tt.opts, idem.WithObserver(func(ctx context.Context, e idem.Event) {
				log(ctx, e)
				fmt.Fprintf(&told, "%+v\n", e)
			}))
			if tt.spoil != nil && len(tt.steps) == 1 {
				tt.spoil(s)
			}
			for i, step := range tt.steps {
				if i > 0 && tt.spoil != nil {
					tt.spoil(s)
				}
				err := step(t, s, opts...)
				if i == len(tt.steps)-1 {
					fmt.Fprintf(&told, "%v\n%+v\n", err, err)
				}
			}
			secrets := []string{secretUser, secretKey, secretPayload, secretValue, secretText}
			wantWithout(t, told.String(), secrets...)
			if rec, found, _ := s.Store.Lookup(t.Context(), key); found {
				wantWithout(t, fmt.Sprintf("%+v %s", rec, rec.Response.Body), secretPayload, secretText)
			}
		})
	}
}

type panickingCodec struct{ brokenCodec }

func (panickingCodec) Encode(any, []byte) ([]byte, error) { panic(secretValue) }

func wantWithout(t *testing.T, told string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(told, secret) {
			t.Errorf("%q was told:\n%s", secret, told)
		}
	}
}
