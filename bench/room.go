package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A room is what becomes of completions on pages with some room: claims are
// small rows, and completing them makes them larger. What counts is how many
// claims are under way at once, since those that were made together share pages.
type room struct {
	Setting, Body string
	InFlight      int
	HOT           float64 // share of completions
	HeapBytes     float64 // per row, overflow included
	KeyBytes      float64 // per row: completions that are not HOT add to it
	WALBytes      float64 // per first run, without page images
}

func measureRoom(ctx context.Context, url string, rows int, short bool) ([]room, error) {
	// Neither time nor durability matters here, and nothing but the table's layout is measured.
	pool, err := connect(ctx, url+"&synchronous_commit=off", 8, 0)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var all []room
	fmt.Println("\n| body | setting | in flight | HOT | heap: bytes/row | key: bytes/row | WAL: bytes |")
	fmt.Println("|---|---|---|---|---|---|---|")
	measure := func(body string, do call, name, sql string, inFlight int) error {
		t, err := newTable(ctx, pool, fmt.Sprintf("room_%d", len(all)), do, `ALTER TABLE {{table}} SET (`+sql+`)`)
		if err != nil {
			return err
		}
		r, err := t.room(ctx, rows, inFlight)
		if err != nil {
			return err
		}
		r.Body, r.Setting = body, name
		fmt.Printf("| %s | %s | %d | %.0f %% | %.0f | %.0f | %.0f |\n", body, name, inFlight, 100*r.HOT, r.HeapBytes, r.KeyBytes, r.WALBytes)
		all = append(all, r)
		return t.exec(ctx, `DROP TABLE {{table}}`)
	}
	type body struct {
		name string
		do   call
	}
	bodies := []body{{"300 bytes", callWith(samplePayment)}, {"1 kB", callWith(orderOf(7))}, {"2 kB", callWith(orderOf(14))}}
	inFlights := []int{1, 4, 8, 16, 128}
	if short {
		bodies, inFlights = bodies[:1], inFlights[3:4]
	}
	for _, body := range bodies {
		for _, inFlight := range inFlights {
			for _, fillfactor := range []int{100, 90, 80, 70, 60, 50} {
				if err := measure(body.name, body.do, fmt.Sprintf("fillfactor %d", fillfactor), fmt.Sprintf(`fillfactor = %d`, fillfactor), inFlight); err != nil {
					return nil, err
				}
			}
		}
	}
	err = measure("2 kB", callWith(orderOf(14)), "fillfactor 70, toast_tuple_target 512", `fillfactor = 70, toast_tuple_target = 512`, 128)
	return all, err
}

// room makes first runs, of which each ends when so many others have begun after
// it as are to be under way.
func (t *table) room(ctx context.Context, rows, inFlight int) (r room, err error) {
	before, err := t.anatomy(ctx)
	if err != nil {
		return r, err
	}
	written, err := countWAL(ctx, t.pool, func() (int, error) {
		end := make([]chan struct{}, rows+1) // of the n-th claim
		for i := range end {
			end[i] = make(chan struct{})
		}
		var claimed, begun atomic.Int64
		op := t.firstRun(func(time.Duration) {
			n := int(claimed.Add(1))
			if n >= inFlight {
				close(end[n-inFlight+1])
			}
			if n <= rows-inFlight {
				<-end[n]
			}
		})
		failed := make(chan error, inFlight)
		for range inFlight {
			go func() {
				var err error
				for n := int(begun.Add(1)); n <= rows && err == nil; n = int(begun.Add(1)) {
					err = op(ctx, n)
				}
				failed <- err
			}()
		}
		var err error
		for range inFlight {
			err = errors.Join(err, <-failed)
		}
		return rows, err
	})
	if err != nil {
		return r, err
	}
	after, err := t.anatomy(ctx)
	if err != nil {
		return r, err
	}
	n := float64(written.operations)
	cost := written.cost()
	return room{
		InFlight: inFlight, HOT: after.hotSince(before),
		HeapBytes: float64(after.Heap+after.Toast) / n, KeyBytes: float64(after.Key) / n,
		WALBytes: cost.Bytes - cost.Images,
	}, nil
}
