package idemredis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
)

type order struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"`
	Note   string `json:"note"`
}

var anOrder = order{"order-1", 4200, "two of the blue ones"}

// BenchmarkHandWritten compares the store with what is written by hand: SET NX,
// the work, SET, or for a replay GET; the payload hashed (by idem's canonical hash
// on both sides) and the result encoded, but no token, no lease and no renewal.
// Both work in turn, in short blocks, on one server; what counts is the median of
// the ratios of neighbours.
func BenchmarkHandWritten(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("first_run/callers=%d", callers), func(b *testing.B) {
			hand, store := benchClients(b)
			var keys atomic.Int64
			next := func() string { return b.Name() + "/" + strconv.FormatInt(keys.Add(1), 10) }
			compare(b, callers,
				func(ctx context.Context) error { return hand.run(ctx, next()) },
				func(ctx context.Context) error { return call(ctx, store, next(), false) })
		})
		b.Run(fmt.Sprintf("replay/callers=%d", callers), func(b *testing.B) {
			hand, store := benchClients(b)
			name := b.Name()
			if err := hand.run(b.Context(), name); err != nil {
				b.Fatal(err)
			}
			if _, err := idem.Do(b.Context(), store, numberedBy(name), anOrder, theOrder); err != nil {
				b.Fatal(err)
			}
			compare(b, callers,
				func(ctx context.Context) error { return hand.replay(ctx, name) },
				func(ctx context.Context) error { return call(ctx, store, name, true) })
		})
	}
}

func benchClients(b *testing.B) (byHand, *idemredis.Store) {
	prefix := prefix(b)
	options := *shared.options
	options.ContextTimeoutEnabled = true
	c := redis.NewClient(&options)
	b.Cleanup(func() { c.Close() })
	return byHand{c, prefix + "hand:"}, idemredis.New(c, idemredis.WithPrefix(prefix))
}

// compare lets callers work for a block, by hand and with the store in turn.
func compare(b *testing.B, callers int, hand, store func(context.Context) error) {
	ctx, block := b.Context(), 1600/callers
	run := func(work func(context.Context) error) float64 {
		began := time.Now()
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for range block {
					if err := work(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		return float64(callers*block) / time.Since(began).Seconds()
	}
	run(hand)
	run(store)
	var byHand, byStore, ratio []float64
	for b.Loop() {
		var h, s float64
		if len(ratio)%2 == 0 {
			h, s = run(hand), run(store)
		} else {
			s, h = run(store), run(hand)
		}
		byHand, byStore, ratio = append(byHand, h), append(byStore, s), append(ratio, s/h)
	}
	b.ReportMetric(median(byHand), "hand/s")
	b.ReportMetric(median(byStore), "idem/s")
	b.ReportMetric(median(ratio), "ratio")
	b.ReportMetric(0, "ns/op") // of both together: says nothing
}

func median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

func numberedBy(name string) idem.Key {
	return idem.Key{User: "user-1", Scope: "orders.create", Key: name}
}

func theOrder(context.Context) (order, idem.Status, error) { return anOrder, 201, nil }

func call(ctx context.Context, s *idemredis.Store, name string, replayed bool) error {
	res, err := idem.Do(ctx, s, numberedBy(name), anOrder, theOrder)
	if err == nil && res.Replayed != replayed {
		return fmt.Errorf("replayed: %v", res.Replayed)
	}
	return err
}

type byHand struct {
	client *redis.Client
	prefix string
}

type handRecord struct {
	Hash   string          `json:"hash"`
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

func (h byHand) key(name string) string { return h.prefix + "user-1:orders.create:" + name }

func (h byHand) run(ctx context.Context, name string) error {
	hash, err := idem.PayloadHash(anOrder)
	if err != nil {
		return err
	}
	claim, err := json.Marshal(handRecord{Hash: hash})
	if err != nil {
		return err
	}
	// GET, so that it learns in the same round trip what there is.
	err = h.client.SetArgs(ctx, h.key(name), claim, redis.SetArgs{Mode: "NX", Get: true, TTL: time.Minute}).Err()
	if !errors.Is(err, redis.Nil) {
		return fmt.Errorf("not a first run: %w", err)
	}
	body, err := json.Marshal(anOrder)
	if err != nil {
		return err
	}
	outcome, err := json.Marshal(handRecord{Hash: hash, Status: 201, Body: body})
	if err != nil {
		return err
	}
	return h.client.Set(ctx, h.key(name), outcome, idem.DefaultRetention).Err()
}

func (h byHand) replay(ctx context.Context, name string) error {
	hash, err := idem.PayloadHash(anOrder)
	if err != nil {
		return err
	}
	found, err := h.client.Get(ctx, h.key(name)).Bytes()
	if err != nil {
		return err
	}
	var r handRecord
	if err := json.Unmarshal(found, &r); err != nil || r.Hash != hash {
		return fmt.Errorf("another payload: %w", err)
	}
	var result order
	return json.Unmarshal(r.Body, &result)
}
