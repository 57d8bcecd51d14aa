package idemsqlite

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A writer carries out what changes the file. SQLite has one writer at a time,
// and most of what a change costs is the disk's sync at its commit. So callers
// queue, and the one whose turn it is carries out what all of them want in one
// transaction. There is no goroutine for it: a caller that is alone goes
// straight through, and those that come while it writes share the next commit.
//
// The queue is also what makes it fair. SQLite's own wait for a lock sleeps up
// to 100 ms between looks, so that of many waiting threads some starve.
type writer struct {
	conn *conn
	fit  func() error // whether the file may be written

	turn   chan struct{} // held by the caller that writes
	closed chan struct{}

	mu      sync.Mutex
	waiting []*change
}

// A change is one caller's part of a transaction.
type change struct {
	ctx context.Context
	// run carries out its statements. It is called again if the transaction
	// failed because of another change.
	run func(*conn) error
	// alone is set once it was part of a transaction that failed.
	alone bool
	err   error         // its result, once done is closed
	done  chan struct{} // closed when it has been committed, or has failed
}

// maxBatch bounds how long a transaction takes, and with it how long other
// processes wait.
const maxBatch = 128

// do carries out a change. It returns nil once the change is committed. If ctx
// ends before its turn comes, nothing has happened.
func (w *writer) do(ctx context.Context, run func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &change{ctx: ctx, run: run, done: make(chan struct{})}
	w.mu.Lock()
	w.waiting = append(w.waiting, c)
	w.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return w.leave(c, ctx.Err())
	case <-w.closed:
		return w.leave(c, ErrClosed)
	case w.turn <- struct{}{}:
	}
	defer func() { <-w.turn }()
	for {
		select {
		case <-c.done:
			return c.err
		case <-w.closed:
			return w.leave(c, ErrClosed)
		default:
		}
		if err := w.lock(ctx); err != nil {
			w.withdraw(c)
			return err
		}
		w.write(w.take())
	}
}

// leave ends a change with err, unless it is being written: then it waits for the
// end of that.
func (w *writer) leave(c *change, err error) error {
	if w.withdraw(c) {
		return err
	}
	<-c.done
	return c.err
}

// withdraw removes a change that has not been taken yet.
func (w *writer) withdraw(c *change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.waiting {
		if other == c {
			w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// take returns the changes that share the next commit.
func (w *writer) take() (batch []*change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.waiting[:min(len(w.waiting), maxBatch)] {
		if c.alone && len(batch) > 0 {
			break
		}
		n++
		if err := c.ctx.Err(); err != nil {
			c.end(err)
			continue
		}
		batch = append(batch, c)
		if c.alone {
			break
		}
	}
	w.waiting = append([]*change(nil), w.waiting[n:]...)
	return batch
}

// putBack lets the changes of a transaction that failed wait again, each for one
// of its own, before those that came later. Those whose callers want to leave
// end here: see leave.
func (w *writer) putBack(batch []*change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	again := make([]*change, 0, len(batch)+len(w.waiting))
	for _, c := range batch {
		if err := w.over(c.ctx); err != nil {
			c.end(err)
			continue
		}
		c.alone = true
		again = append(again, c)
	}
	w.waiting = append(again, w.waiting...)
}

// over returns why a caller would leave, if it would.
func (w *writer) over(ctx context.Context) error {
	select {
	case <-w.closed:
		return ErrClosed
	default:
		return ctx.Err()
	}
}

func (c *change) end(err error) {
	c.err = err
	close(c.done)
}

// The pauses between looks for the lock of the file while another process has
// it. They are random, so that no process always comes too late.
const (
	firstPause = 100 * time.Microsecond
	maxPause   = 2 * time.Millisecond
)

// lock begins a transaction that may write: it waits for other processes until
// ctx ends.
func (w *writer) lock(ctx context.Context) error {
	for most := firstPause; ; most = min(2*most, maxPause) {
		_, err := w.conn.exec(`BEGIN IMMEDIATE`)
		switch {
		case err == nil:
			if err := w.fit(); err != nil {
				w.undo()
				return err
			}
			return nil
		case !busy(err):
			w.undo() // in case that one is still open
			return err
		}
		pause := time.NewTimer(most/2 + rand.N(most/2))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return gaveUp(ctx)
		case <-w.closed:
			pause.Stop()
			return ErrClosed
		}
	}
}

// write carries out a batch in the transaction that has begun, and ends it.
func (w *writer) write(batch []*change) {
	err := w.commit(batch)
	if err != nil && len(batch) > 1 {
		w.putBack(batch) // one of them has spoiled the transaction for all
		return
	}
	for _, c := range batch {
		c.end(err)
	}
}

func (w *writer) commit(batch []*change) error {
	for _, c := range batch {
		if err := c.run(w.conn); err != nil {
			w.undo()
			return err
		}
	}
	if _, err := w.conn.exec(`COMMIT`); err != nil {
		w.undo()
		return err
	}
	return nil
}

// undo rolls back what there is to roll back: SQLite does so itself after some
// errors.
func (w *writer) undo() { _, _ = w.conn.exec(`ROLLBACK`) }

// close waits for the transaction that is being written, and lets no other begin.
func (w *writer) close() error {
	close(w.closed)
	w.turn <- struct{}{}
	return w.conn.close()
}
