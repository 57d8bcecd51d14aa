package idem_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

// A transfer takes about 300 bytes of JSON.
type transfer struct {
	ID       int64    `json:"id"`
	Amount   string   `json:"amount"`
	Currency string   `json:"currency"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Note     string   `json:"note"`
	Tags     []string `json:"tags"`
}

var transfers = transfer{
	ID: 4244637855813302974, Amount: "1299.50", Currency: "EUR", From: "DE89370400440532013000", To: "FR1420041010050500013M02606",
	Note: strings.Repeat("rent ", 24), Tags: []string{"rent", "monthly"},
}

func makeTransfer(context.Context) (transfer, idem.Status, error) { return transfers, 201, nil }

func benchKey(i int) idem.Key {
	return idem.Key{User: "user-1", Scope: "transfers.create", Key: strconv.Itoa(i)}
}

// The closure alone: what Do is compared with.
func BenchmarkClosureOnly(b *testing.B) {
	ctx := b.Context()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = benchKey(i)
		if _, _, err := makeTransfer(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	ctx, store := b.Context(), memstore.New(memstore.MaxRecords(0))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := idem.Do(ctx, store, benchKey(i), transfers, makeTransfer); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	ctx, store, key := b.Context(), memstore.New(), benchKey(0)
	if _, err := idem.Do(ctx, store, key, transfers, makeTransfer); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if res, err := idem.Do(ctx, store, key, transfers, makeTransfer); err != nil || !res.Replayed {
			b.Fatal(res.Replayed, err)
		}
	}
}

func BenchmarkPeek(b *testing.B) {
	ctx, store, key := b.Context(), memstore.New(), benchKey(0)
	if _, err := idem.Do(ctx, store, key, transfers, makeTransfer); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if replay, err := idem.Peek(ctx, store, key, transfers); err != nil || !replay {
			b.Fatal(replay, err)
		}
	}
}

func BenchmarkPayloadHash(b *testing.B) {
	for _, bm := range []struct {
		name    string
		payload any
	}{
		{"struct", transfers},
		{"bytes", []byte(strings.Repeat("x", 300))},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := idem.PayloadHash(bm.payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
