package idemmq_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

var errFlaky = errors.New("connection reset")

// synctestRun is t.Run with a parallel test in a bubble of its own.
func synctestRun(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

func TestB31ANakFreesTheMessageAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := memstore.New(), 0
		handle := func() *delivery {
			d := message("order-1")
			_, _ = idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error {
				if runs++; runs == 1 {
					return errFlaky
				}
				return nil
			}, idemmq.WithBackoff(1, 1))
			return d
		}
		handle().want(t, "nak in 1ns")
		handle().want(t, "ack") // without a moment's wait
		if runs != 2 {
			t.Errorf("the handler ran %d times, want 2", runs)
		}
	})
}

// Each of 100 messages fails once, in one of three ways. None is lost, and none
// that was done is done again.
func TestB118AFailedMessageIsNotLost(t *testing.T) {
	t.Parallel()
	for _, fail := range []struct {
		name string
		how  func(*process, *brokered) error
	}{
		{"with an error", func(*process, *brokered) error { return errFlaky }},
		{"with a panic", func(*process, *brokered) error { panic("boom") }},
		{"with its process", func(p *process, d *brokered) error {
			p.dead, d.mute = true, true
			return errFlaky
		}},
	} {
		synctestRun(t, fail.name, func(t *testing.T) {
			var (
				shared, b      = memstore.New(), newBroker(30 * time.Second)
				names          = ids(100)
				tries, effects tally
			)
			for _, id := range names {
				b.publish(idemmq.Message{ID: id})
			}
			b.consume(4, func(d *brokered) {
				defer func() { _ = recover() }() // as a consumer's loop does
				p := newProcess(shared)
				_, _ = idemmq.Handle(t.Context(), p, "billing", d, func(context.Context) error {
					if tries.add(d.msg.ID) == 1 {
						return fail.how(p, d)
					}
					effects.add(d.msg.ID)
					return nil
				}, idemmq.WithIdem(idem.WithLease(3*time.Second)))
			})
			effects.wantEach(t, "effects", names, 1)
			if diff := cmp.Diff(sorted(names), sorted(b.acked)); diff != "" {
				t.Errorf("acknowledged (-want +got):\n%s", diff)
			}
			for id, n := range b.counts {
				if n > 3 {
					t.Errorf("%s was delivered %d times, want at most 3", id, n)
				}
			}
		})
	}
}

func TestB120EveryDeliveryEndsInOneDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, lease := memstore.New(), 10*time.Second
		handle := func(d *delivery, fn func(context.Context) error) error {
			_, err := idemmq.Handle(t.Context(), store, "billing", d, fn, idemmq.WithIdem(idem.WithLease(lease)))
			return err
		}
		never := func(context.Context) error {
			t.Error("the handler ran for a duplicate")
			return nil
		}

		first, during, after, other := message("order-1"), message("order-1"), message("order-1"), message("order-1")
		other.msg.Body = []byte("another body")
		err := handle(first, func(ctx context.Context) error {
			wait(ctx, time.Second)
			if err := handle(during, never); !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("during the run: %v, want ErrInProgress", err)
			}
			return nil
		})
		if err := errors.Join(err, handle(after, never)); err != nil {
			t.Error(err)
		}
		if err := handle(other, never); !errors.Is(err, idem.ErrPayloadMismatch) {
			t.Errorf("another body: %v, want ErrPayloadMismatch", err)
		}
		first.want(t, "ack")
		during.want(t, "nak in 9.05s") // the rest of the lease, and a little
		after.want(t, "ack")
		other.want(t, "dead_letter: payload_mismatch")
	})
}

// The input comes three times, twice at once, and the first run outlives its
// lease. What it publishes has the same ids each time, so each output counts
// once.
func TestB122OutputsHaveIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			store         = newProcess(memstore.New())
			b             = newBroker(time.Minute)
			runs, outputs tally
		)
		for range 3 {
			b.publish(idemmq.Message{ID: "order-1", Body: []byte("the same")})
		}
		b.consume(2, func(d *brokered) {
			_, _ = idemmq.Handle(t.Context(), neverRenews{store}, "billing", d, func(ctx context.Context) error {
				first := runs.add("run") == 1
				for i := range 2 {
					outputs.add(idemmq.OutputID(idemmq.KeyFrom(ctx), i))
				}
				if first {
					<-time.After(5 * time.Second) // deaf to its context
				}
				return nil
			}, idemmq.WithIdem(idem.WithLease(time.Second)))
		})
		key := idem.Key{User: idem.NoUser, Scope: "billing", Key: "order-1"}
		outputs.wantEach(t, "outputs by id", []string{idemmq.OutputID(key, 0), idemmq.OutputID(key, 1)}, 2)
		if len(b.acked) != 3 || len(b.dead) != 0 {
			t.Errorf("%d acknowledged, %d dead-lettered, want 3 and 0", len(b.acked), len(b.dead))
		}
	})
}

// neverRenews is a store whose leases end under a long run.
type neverRenews struct{ idem.Store }

func (neverRenews) Renew(context.Context, idem.RenewRequest) error { return errFlaky }

// A handler of 3 s against a broker that waits 1 s for a decision, with one
// consumer that extends its deliveries and one whose extensions do not arrive.
func TestB124WorkLongerThanTheBrokersLimitRunsOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lease         time.Duration
		deaf          bool
		maxDeliveries int
	}{
		{lease: 10 * time.Second, maxDeliveries: 1},
		{lease: 500 * time.Millisecond, maxDeliveries: 1}, // renewed
		{lease: 10 * time.Second, deaf: true, maxDeliveries: 2},
		{lease: 500 * time.Millisecond, deaf: true, maxDeliveries: 7}, // one for each lease at most
	} {
		synctestRun(t, fmt.Sprintf("lease %v, deaf broker %v", tt.lease, tt.deaf), func(t *testing.T) {
			store, b, runs := memstore.New(), newBroker(time.Second), tally{}
			b.publish(idemmq.Message{ID: "order-1"})
			b.consume(2, func(d *brokered) {
				var delivery idemmq.Delivery = d
				if tt.deaf {
					delivery = deaf{d}
				}
				_, err := idemmq.Handle(t.Context(), store, "billing", delivery, func(ctx context.Context) error {
					runs.add("order-1")
					wait(ctx, 3*time.Second)
					return ctx.Err()
				}, idemmq.WithIdem(idem.WithLease(tt.lease)))
				if err != nil && !errors.Is(err, idem.ErrInProgress) {
					t.Error(err)
				}
			})
			runs.wantEach(t, "runs", []string{"order-1"}, 1)
			if n := b.counts["order-1"]; n > tt.maxDeliveries {
				t.Errorf("delivered %d times, want at most %d", n, tt.maxDeliveries)
			}
			if len(b.acked) != 1 {
				t.Errorf("acknowledged %v, want the message once", b.acked)
			}
		})
	}
}

type deaf struct{ *brokered }

func (deaf) Extend(context.Context) error { return errors.ErrUnsupported }
