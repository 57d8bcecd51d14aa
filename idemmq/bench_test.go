package idemmq_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

// The cost of a delivery over the bare call, and over idem.Do.
func BenchmarkHandle(b *testing.B) {
	bare := func(context.Context) error { return nil }
	newStore := func() *memstore.Store { return memstore.New(memstore.MaxRecords(0)) }
	b.Run("bare call", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = bare(b.Context())
		}
	})
	b.Run("Do, first run", func(b *testing.B) {
		store, n := newStore(), 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			d := message(strconv.Itoa(n))
			key := idem.Key{User: idem.NoUser, Scope: "billing", Key: d.msg.ID}
			_, err := idem.Do(b.Context(), store, key, d.msg.Body, func(ctx context.Context) (struct{}, idem.Status, error) {
				return struct{}{}, 0, bare(ctx)
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Handle, first run", func(b *testing.B) {
		store, n := newStore(), 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			if _, err := idemmq.Handle(b.Context(), store, "billing", silent{message(strconv.Itoa(n))}, bare); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Handle, replay", func(b *testing.B) {
		store, d := newStore(), silent{message("order-1")}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := idemmq.Handle(b.Context(), store, "billing", d, bare); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// silent is a delivery whose decisions cost nothing.
type silent struct{ *delivery }

func (silent) Ack(context.Context) error { return nil }
