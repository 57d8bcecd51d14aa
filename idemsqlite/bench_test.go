package idemsqlite_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

// BenchmarkHandWritten compares the store with what a careful engineer writes by
// hand: the same settings of SQLite, one connection that writes and several that
// read, prepared statements, the payload hashed and the result encoded. Both
// work in turn, in short blocks of one run, so that they meet the same machine;
// what counts is the ratio of what they get done.
func BenchmarkHandWritten(b *testing.B) {
	for _, sync := range []string{"FULL", "NORMAL"} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("first_run/%s/callers=%d", sync, callers), func(b *testing.B) {
				hand, store := benchStores(b, sync)
				var keys atomic.Int64
				next := func() string { return "k" + strconv.FormatInt(keys.Add(1), 10) }
				compare(b, callers, 32,
					func(ctx context.Context) error { return hand.firstRun(ctx, next()) },
					func(ctx context.Context) error { return firstRun(ctx, store, next()) })
			})
		}
	}
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("replay/callers=%d", callers), func(b *testing.B) {
			hand, store := benchStores(b, "NORMAL")
			if err := hand.firstRun(b.Context(), "k"); err != nil {
				b.Fatal(err)
			}
			if err := firstRun(b.Context(), store, "k"); err != nil {
				b.Fatal(err)
			}
			compare(b, callers, 200,
				func(ctx context.Context) error { return hand.replay(ctx, "k") },
				func(ctx context.Context) error { return replay(ctx, store, "k") })
		})
	}
}

// compare lets callers work for a block, by hand and with the store in turn.
func compare(b *testing.B, callers, block int, hand, store func(context.Context) error) {
	ctx := b.Context()
	run := func(work func(context.Context) error) time.Duration {
		began := time.Now()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range block {
					if err := work(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	var byHand, byStore time.Duration
	n := 0
	for b.Loop() {
		if n++; n%2 == 0 {
			byHand += run(hand)
			byStore += run(store)
		} else {
			byStore += run(store)
			byHand += run(hand)
		}
	}
	ops := float64(n * callers * block)
	b.ReportMetric(ops/byHand.Seconds(), "hand/s")
	b.ReportMetric(ops/byStore.Seconds(), "idem/s")
	b.ReportMetric(byHand.Seconds()/byStore.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op") // of both together: says nothing
}

type order struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"`
	Note   string `json:"note"`
}

var anOrder = order{"order-1", 4200, "two of the blue ones"}

func firstRun(ctx context.Context, store idem.Store, key string) error {
	res, err := idem.Do(ctx, store, idem.Key{User: "user-1", Scope: "orders.create", Key: key}, anOrder,
		func(context.Context) (order, idem.Status, error) { return anOrder, 201, nil })
	if err == nil && res.Replayed {
		return fmt.Errorf("%s was replayed", key)
	}
	return err
}

func replay(ctx context.Context, store idem.Store, key string) error {
	res, err := idem.Do(ctx, store, idem.Key{User: "user-1", Scope: "orders.create", Key: key}, anOrder,
		func(context.Context) (order, idem.Status, error) { return anOrder, 201, nil })
	if err == nil && !res.Replayed {
		return fmt.Errorf("%s was not replayed", key)
	}
	return err
}

type byHand struct{ insert, update, sel *sql.Stmt }

func benchStores(b *testing.B, sync string) (byHand, *idemsqlite.Store) {
	dir := b.TempDir()
	var opts []idemsqlite.Option
	if sync == "NORMAL" {
		opts = append(opts, idemsqlite.WithNormalSync())
	}
	store := open(b, filepath.Join(dir, "idem.db"), opts...)

	dsn := "file:" + filepath.Join(dir, "hand.db") + "?_auto_vacuum=INCREMENTAL&_busy_timeout=10000&_journal_mode=WAL&_synchronous=" + sync
	prepare := func(conns int, statements ...string) (prepared []*sql.Stmt) {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS hand (
			user_id TEXT NOT NULL, scope TEXT NOT NULL, idempotency_key TEXT NOT NULL,
			request_hash TEXT NOT NULL, status TEXT NOT NULL, response_status INTEGER, response_body BLOB,
			inserted_at INTEGER NOT NULL, completed_at INTEGER,
			PRIMARY KEY (user_id, scope, idempotency_key)) STRICT`); err != nil {
			b.Fatal(err)
		}
		for _, s := range statements {
			stmt, err := db.Prepare(s)
			if err != nil {
				b.Fatal(err)
			}
			prepared = append(prepared, stmt)
		}
		return prepared
	}
	w := prepare(1,
		`INSERT INTO hand (user_id, scope, idempotency_key, request_hash, status, inserted_at)
			VALUES (?, ?, ?, ?, 'processing', unixepoch()) ON CONFLICT DO NOTHING`,
		`UPDATE hand SET status = 'succeeded', response_status = 201, response_body = ?, completed_at = unixepoch()
			WHERE user_id = ? AND scope = ? AND idempotency_key = ?`)
	r := prepare(4, `SELECT request_hash, status, response_status, response_body FROM hand
		WHERE user_id = ? AND scope = ? AND idempotency_key = ?`)
	return byHand{w[0], w[1], r[0]}, store
}

func (h byHand) hash() (string, error) {
	text, err := json.Marshal(anOrder)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

func (h byHand) firstRun(ctx context.Context, key string) error {
	sum, err := h.hash()
	if err != nil {
		return err
	}
	res, err := h.insert.ExecContext(ctx, "user-1", "orders.create", key, sum)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("%s is there: %w", key, err)
	}
	body, err := json.Marshal(anOrder)
	if err != nil {
		return err
	}
	_, err = h.update.ExecContext(ctx, body, "user-1", "orders.create", key)
	return err
}

func (h byHand) replay(ctx context.Context, key string) error {
	sum, err := h.hash()
	if err != nil {
		return err
	}
	var stored, status string
	var code int
	var body []byte
	err = h.sel.QueryRowContext(ctx, "user-1", "orders.create", key).Scan(&stored, &status, &code, &body)
	if err != nil {
		return err
	}
	if stored != sum || status != "succeeded" {
		return fmt.Errorf("%s is %s", key, status)
	}
	var result order
	return json.Unmarshal(body, &result)
}
