package idemwatermill_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/idemwatermill"
	"github.com/idem-go/idem/memstore"
)

func TestB118AMessageThatFailsOnceIsNotLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		tries := map[string]int{}
		r.start(func(msg *message.Message) ([]*message.Message, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if tries[msg.UUID]++; tries[msg.UUID] == 1 {
				return nil, errFlaky
			}
			return nil, nil
		}, r.once(memstore.New()))
		want := map[string]int{}
		for i := range 100 {
			r.send(fmt.Sprint(i), "order")
			want[fmt.Sprint(i)] = 2
		}
		synctest.Wait()
		for i := range 100 { // duplicates of what is done
			r.send(fmt.Sprint(i), "order")
		}
		synctest.Wait()
		r.want("runs", want, r.runs)
	})
}

// The handler has run, but what it produced cannot be published, twice. It does
// not run again, and the same messages are published in the end.
func TestB122ReplaysPublishTheSameMessages(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.failing = 2
		var want []string
		r.start(func(msg *message.Message) ([]*message.Message, error) {
			out := []*message.Message{
				message.NewMessage(watermill.NewUUID(), []byte{0, 255}),
				message.NewMessage(watermill.NewUUID(), nil),
			}
			out[0].Metadata.Set("order", msg.UUID)
			for _, m := range out {
				want = append(want, fmt.Sprintf("%s %s %v", m.UUID, m.Payload, m.Metadata))
			}
			return out, nil
		}, r.once(memstore.New()))
		r.send("order-1", "order")
		synctest.Wait()
		r.want("runs", map[string]int{"order-1": 1}, r.runs)
		r.want("published", want, r.out)
		r.send("order-1", "order") // a duplicate publishes them once more, as duplicates
		synctest.Wait()
		r.want("runs", map[string]int{"order-1": 1}, r.runs)
		r.want("published", append(want, want...), r.out)
	})
}

func TestB120EveryDeliveryEndsInOneDecision(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, idemwatermill.DefaultWait} {
		t.Run(fmt.Sprint("waiting ", wait), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				nacks := 0
				count := func(h message.HandlerFunc) message.HandlerFunc {
					return func(msg *message.Message) ([]*message.Message, error) {
						out, err := h(msg)
						if errors.Is(err, idem.ErrInProgress) {
							r.mu.Lock()
							nacks++
							r.mu.Unlock()
							<-time.After(100 * time.Millisecond) // these channels deliver again at once
						}
						return out, err
					}
				}
				r.start(func(*message.Message) ([]*message.Message, error) {
					<-time.After(5 * time.Second)
					return nil, nil
				}, r.poisonQueue(), count, r.once(memstore.New(), idemwatermill.WithWait(wait)))
				for range 2 {
					r.send("order-1", "order")
				}
				<-time.After(10 * time.Second)
				r.send("order-1", "order")
				r.send("order-1", "another order")
				synctest.Wait()
				r.want("runs", map[string]int{"order-1": 1}, r.runs)
				r.want("poisoned", []string{
					"order-1 another order: idemwatermill: payload_mismatch: " + idem.ErrPayloadMismatch.Error(),
				}, r.poisoned)
				if wait == idemwatermill.DefaultWait && nacks > 0 || wait == 0 && nacks == 0 {
					t.Errorf("%d nacks while the message was being handled", nacks)
				}
			})
		})
	}
}

func TestARejectedMessageIsPoisonAndSoAreItsDuplicates(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(func(*message.Message) ([]*message.Message, error) {
			return nil, idemmq.Reject(errFlaky)
		}, r.poisonQueue(), r.once(memstore.New()))
		r.send("order-1", "order")
		synctest.Wait()
		r.send("order-1", "order")
		synctest.Wait()
		r.want("runs", map[string]int{"order-1": 1}, r.runs)
		r.want("poisoned", []string{
			"order-1 order: idemwatermill: rejected: connection reset",
			"order-1 order: idemwatermill: rejected: idem: recorded failure, status 422",
		}, r.poisoned)
	})
}

func TestMessagesWithoutAKeyArePoison(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(done, r.poisonQueue(), r.once(memstore.New()))
		r.send("", "order")
		r.send("order\n1", "order")
		synctest.Wait()
		r.want("runs", map[string]int{}, r.runs)
		if len(r.poisoned) != 2 {
			t.Errorf("poisoned %q, want both", r.poisoned)
		}
	})
}

func TestKeyAndPayloadFunctions(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(done, r.once(memstore.New(),
			idemwatermill.WithKey(func(m *message.Message) (idem.Key, error) {
				return idem.Key{User: "tenant", Key: string(m.Payload[:7])}, nil
			}),
			idemwatermill.WithPayload(func(m *message.Message) any { return string(m.Payload[:7]) }),
		))
		r.send("a", "order-1 and more")
		synctest.Wait()
		r.send("b", "order-1 and less")
		r.send("c", "order-2")
		synctest.Wait()
		r.want("runs", map[string]int{"a": 1, "c": 1}, r.runs)
	})
}

// What was produced is too large to keep. The first delivery publishes it. A
// duplicate cannot, and does not pretend that it could.
func TestOutputThatIsTooLargeIsNotForgottenSilently(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("out", make([]byte, 100))}, nil
		}, r.poisonQueue(), r.once(memstore.New(), idemwatermill.WithIdem(idem.WithMaxResultBytes(100))))
		r.send("order-1", "order")
		synctest.Wait()
		r.send("order-1", "order")
		synctest.Wait()
		r.want("runs", map[string]int{"order-1": 1}, r.runs)
		r.want("number published", 1, len(r.out))
		r.want("poisoned", []string{
			"order-1 order: idemwatermill: output_not_kept: " + idem.ErrResultNotKept.Error(),
		}, r.poisoned)
	})
}

// The handler works in the context of its run, and the middlewares around it in
// theirs.
func TestContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		type mark struct{}
		outer := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				msg.SetContext(context.WithValue(msg.Context(), mark{}, "outer"))
				out, err := h(msg)
				if msg.Context().Err() != nil || idem.ExecutionID(msg.Context()) != "" {
					t.Errorf("after the run the context is the run's: %v", msg.Context())
				}
				return out, err
			}
		}
		r.start(func(msg *message.Message) ([]*message.Message, error) {
			if ctx := msg.Context(); ctx.Value(mark{}) != "outer" || idem.ExecutionID(ctx) == "" || idem.Attempt(ctx) != 1 {
				t.Errorf("the handler's context: %v", ctx)
			}
			return nil, nil
		}, outer, r.once(memstore.New()))
		r.send("order-1", "order")
		synctest.Wait()
		r.want("runs", map[string]int{"order-1": 1}, r.runs)
	})
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for i, opts := range [][]idemwatermill.Option{
		{nil},
		{idemwatermill.WithKey(nil)},
		{idemwatermill.WithPayload(nil)},
		{idemwatermill.WithWait(-1)},
	} {
		if _, err := idemwatermill.Middleware(memstore.New(), opts...); !errors.Is(err, idem.ErrInvalidOption) {
			t.Errorf("%d: error %v, want ErrInvalidOption", i, err)
		}
	}
	if _, err := idemwatermill.Middleware(nil); !errors.Is(err, idem.ErrInvalidOption) {
		t.Errorf("nil store: error %v, want ErrInvalidOption", err)
	}
}
