package idem_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/idem-go/idem"
)

type thrown struct{ reason string }

//go:noinline
func panicsHere(context.Context) (string, idem.Status, error) { panic(&thrown{"original"}) }

// A panic passes through Do: neither its value nor its stack is lost, and the
// claim is held, or kept if all is to be stored.
func TestPanicContinuesUnchanged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		opts []idem.Option
		want idem.Disposition
	}{
		{"by default it holds", nil, idem.Hold},
		{"StoreAll keeps it", []idem.Option{idem.WithDisposition(idem.StoreAll)}, idem.Keep},
		{"another rule releases it", []idem.Option{idem.WithDisposition(func(o idem.Outcome) idem.Disposition {
			if !o.Panicked {
				t.Error("Panicked = false")
			}
			return idem.Release
		})}, idem.Release},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s, events := newSpy(), &recorder{}
			func() {
				defer func() {
					p, ok := recover().(*thrown)
					if !ok || p.reason != "original" {
						t.Errorf("recovered %v, want the original value", p)
					}
					if stack := string(debug.Stack()); !strings.Contains(stack, "panicsHere") {
						t.Errorf("the stack of the panic is gone:\n%s", stack)
					}
				}()
				_, err := idem.Do(t.Context(), s, testKey, payload, panicsHere, append(tt.opts, idem.WithLease(lease), events.option())...)
				t.Errorf("Do returned %v", err)
			}()
			if executed := events.of(idem.EventExecuted); len(executed) != 1 || executed[0].Disposition != tt.want {
				t.Errorf("events %+v, want one of a run with disposition %v", executed, tt.want)
			}
			wantAfterCrash(t, s, tt.want)
		})
	}
}

func TestGoexitContinuesUnchanged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		opts []idem.Option
		want idem.Disposition
	}{
		{"by default it holds", nil, idem.Hold},
		{"StoreAll keeps it", []idem.Option{idem.WithDisposition(idem.StoreAll)}, idem.Keep},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s := newSpy()
			wait := goes(func() {
				_, err := idem.Do(t.Context(), s, testKey, payload, func(context.Context) (string, idem.Status, error) {
					runtime.Goexit()
					return "", 0, nil
				}, append(tt.opts, idem.WithLease(lease))...)
				t.Errorf("Do returned %v", err)
			})
			wait()
			wantAfterCrash(t, s, tt.want)
		})
	}
}

// wantAfterCrash checks what becomes of a key whose closure did not return.
func wantAfterCrash(t *testing.T, s idem.Store, disposition idem.Disposition) {
	t.Helper()
	w := returns("next", 200, nil)
	res, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
	switch disposition {
	case idem.Keep:
		recorded, ok := errors.AsType[*idem.RecordedError](err)
		if !ok || recorded.Code != idem.CodeExecutionFailed || recorded.Status != 500 {
			t.Errorf("err = %v, want the recorded crash", err)
		}
		wantResult(t, res, "", 500, true)
	case idem.Release:
		wantErr(t, err)
		wantResult(t, res, "next", 200, false)
	case idem.Hold:
		wantErr(t, err, idem.ErrInProgress)
		pass(lease)
		_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithStale(idem.Refuse))
		wantErr(t, err, idem.ErrOutcomeUnknown)
		w.wantRuns(t, 0)
		res, err = idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
		wantResult(t, res, "next", 200, false)
	}
}

// A panic and a value whose encoding panics too: the first one is the caller's.
func TestPanicContinuesThoughTheValueDoesNotEncode(t *testing.T) {
	t.Parallel()
	s := newSpy()
	defer func() {
		if p := recover(); p != "original" {
			t.Errorf("recovered %v, want the original value", p)
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, returns(panicking{}, 200, nil).fn)
		wantErr(t, err, idem.ErrResultNotKept)
	}()
	_, _ = idem.Do(t.Context(), s, testKey, payload, func(context.Context) (panicking, idem.Status, error) {
		panic("original")
	}, idem.WithDisposition(idem.StoreAll))
}
