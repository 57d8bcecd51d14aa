package idemwatermill_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemwatermill"
	"github.com/idem-go/idem/memstore"
)

// The documented chain, with a handler that fails, panics, is too slow and then
// succeeds.
func TestDocumentedOrder(t *testing.T) {
	inBubble(t, func(r *rig) {
		var (
			tries int
			ids   = map[string]bool{}
			began = time.Now()
			lease = 10 * time.Second
			when  []time.Duration
		)
		r.start(func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			ids[idem.ExecutionID(ctx)] = true
			when = append(when, time.Since(began))
			switch tries++; tries {
			case 1:
				return nil, errFlaky
			case 2:
				panic("boom")
			case 3:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		},
			r.poisonQueue(),
			middleware.Retry{
				MaxRetries: 3, InitialInterval: time.Second, MaxInterval: time.Second, Multiplier: 1,
				ShouldRetry: idemwatermill.ShouldRetry,
			}.Middleware,
			middleware.Recoverer,
			r.once(memstore.New(), idemwatermill.WithIdem(idem.WithLease(lease)), idemwatermill.WithWait(time.Minute)),
			middleware.Timeout(3*time.Second),
		)
		r.send("order-1", "order")
		<-time.After(time.Minute)
		synctest.Wait()
		r.want("runs", map[string]int{"order-1": 4}, r.runs)
		r.want("poisoned", []string(nil), r.poisoned)
		// A failure is tried again after Retry's pause, a panic and a timeout when
		// the lease is over.
		for i, least := range []time.Duration{0, time.Second, time.Second + lease, time.Second + 2*lease} {
			if when[i] < least || when[i] > least+5*time.Second {
				t.Errorf("run %d began after %v, want about %v", i+1, when[i], least)
			}
		}
		if len(ids) != 1 {
			t.Errorf("%d execution ids, want one for all runs", len(ids))
		}
	})
}

// Watermill's Deduplicator marks a message before its handler has run: of 100
// messages that fail once it loses 100. That is what this package is for.
func TestDeduplicatorLosesWhatFailsOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		handled := 0
		dedup := &middleware.Deduplicator{Repository: repository{}, KeyFactory: func(m *message.Message) (string, error) {
			return m.UUID, nil
		}}
		r.start(func(msg *message.Message) ([]*message.Message, error) {
			if r.runs[msg.UUID] == 1 {
				return nil, errFlaky
			}
			handled++
			return nil, nil
		}, serial(), dedup.Middleware)
		for i := range 100 {
			r.send(fmt.Sprint(i), "order")
		}
		synctest.Wait()
		if handled != 0 {
			t.Errorf("handled %d of 100; if the Deduplicator has been mended, so should the documentation be", handled)
		}
	})
}

// repository is the Deduplicator's default one, without its goroutine.
type repository map[string]bool

func (r repository) IsDuplicate(_ context.Context, key string) (bool, error) {
	seen := r[key]
	r[key] = true
	return seen, nil
}

// serial lets one message through at a time.
func serial() message.HandlerMiddleware {
	turn := make(chan struct{}, 1)
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			turn <- struct{}{}
			defer func() { <-turn }()
			return h(msg)
		}
	}
}

func TestShouldRetry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{errFlaky, true},
		{idem.ErrUnavailable, true},
		{errors.Join(errFlaky, idem.ErrLeaseLost), true},
		{&idem.InProgressError{RetryAfter: 1}, false},
		{&idemwatermill.PoisonError{}, false},
		{fmt.Errorf("wrapped: %w", &idemwatermill.PoisonError{Err: errFlaky}), false},
	} {
		if got := idemwatermill.ShouldRetry(middleware.RetryParams{Err: tt.err}); got != tt.want {
			t.Errorf("ShouldRetry(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}
