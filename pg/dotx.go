package pg

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// DoTx is [idem.Do] exactly once: the claim, what fn writes through its
// transaction, and the outcome commit together or not at all. [idem.DoTx] tells
// how it differs from Do.
//
// It costs no commit and no round trip of its own: the transaction begins,
// locks the key and reads its record in one, and records the outcome and commits
// in one. It is READ COMMITTED, whatever the default, and may be idle for as
// long as the lease. fn must not commit it, and what fn does outside of it is
// not undone.
//
// Over a caller's own transaction the call is a savepoint, the isolation level
// is the caller's, and the outcome holds once the caller commits. There a
// SQLSTATE 40001 is returned like any other error, and a call with the same key
// inside fn is refused.
func DoTx[T any](ctx context.Context, store *Store, key idem.Key, payload any,
	fn func(context.Context, pgx.Tx) (T, idem.Status, error), opts ...idem.Option,
) (idem.Result[T], error) {
	if store == nil {
		return idem.Do[T](ctx, nil, key, payload, nil, opts...) // the error for it
	}
	return idem.DoTx(ctx, store, key, payload, fn, opts...)
}

// Begin begins a transaction that ends with the run of [idem.Do] that ctx
// belongs to: it commits together with the outcome if that is kept and no error,
// and is rolled back otherwise. The claim is visible to others from the start,
// so this is for work that is done partly outside Postgres:
//
//	idem.Do(ctx, store, key, order, func(ctx context.Context) (Order, idem.Status, error) {
//		charge, err := provider.Charge(ctx, idem.ExecutionID(ctx), order.Amount)
//		if err != nil {
//			return Order{}, 0, idem.Unknown(err)
//		}
//		tx, err := pg.Begin(ctx, store)
//		if err != nil {
//			return Order{}, 0, idem.Unknown(err)
//		}
//		if _, err = tx.Exec(ctx, "INSERT INTO orders …", charge.ID); err != nil {
//			return Order{}, 0, idem.Unknown(err)
//		}
//		return order, 201, nil
//	})
//
// If the claim was lost meanwhile, everything is rolled back and Do returns
// [idem.ErrLeaseLost]. If the commit fails, Do returns [idem.ErrOutcomeUnknown]
// and the claim is held until its lease ends: the work outside is done, its
// record is not. The transaction is READ COMMITTED; the closure must not commit
// it. A closure takes one.
func Begin(ctx context.Context, store *Store) (pgx.Tx, error) {
	var t *transaction
	err := idem.Enlist(ctx, func(c idem.Claim) (_ idem.Enlisted, err error) {
		t, err = store.join(ctx, c)
		return t, err
	})
	if err != nil {
		return nil, err
	}
	return t.Tx(), nil
}

// join begins a transaction for a claim that others can see already. Whoever
// comes with its key may hold the key's lock, but only to take a look.
func (s *Store) join(ctx context.Context, c idem.Claim) (*transaction, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		t, err := s.begin(ctx, idem.BeginRequest{Key: c.Key, Idle: c.Lease})
		switch {
		case err != nil:
			return nil, err
		case t.rec.Token != c.Token || t.rec.State != idem.Processing:
			t.Rollback(ctx)
			return nil, idem.ErrLeaseLost
		case t.locked:
			return t, nil
		}
		t.Rollback(ctx)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

var _ idem.TxStore[pgx.Tx] = (*Store)(nil)

// BeginTx implements [idem.TxStore].
func (s *Store) BeginTx(ctx context.Context, req idem.BeginRequest) (idem.Transaction[pgx.Tx], error) {
	t, err := s.begin(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case t.nested && (t.rec.Attempt == 0 || t.rec.Expired() || t.rec.State == idem.Processing):
		t.Rollback(ctx)
		return nil, idem.Permanent(&idem.InProgressError{RetryAfter: time.Second})
	}
	return t, nil
}

// A transaction is one call's: a real one, or a savepoint in a caller's.
type transaction struct {
	store   *Store
	conn    *pgx.Conn
	release func() // gives conn back
	own     bool   // within a caller's transaction

	key    idem.Key
	idle   string // how long the session may be idle, if it is the store's
	rec    idem.Record
	began  time.Time // the database's name for the transaction, as it were
	locked bool
	nested bool // this session had locked the key before
	opened bool
	undone bool
	tx     guarded
}

// The statements that end a transaction, by whether it is a savepoint. A
// savepoint of the same name within another one hides it until it is released.
var (
	commit   = map[bool]string{false: `COMMIT`, true: `RELEASE SAVEPOINT idem_call`}
	rollback = map[bool]string{false: `ROLLBACK`, true: `ROLLBACK TO SAVEPOINT idem_call; RELEASE SAVEPOINT idem_call`}
	again    = map[bool]string{false: `ROLLBACK; BEGIN ISOLATION LEVEL READ COMMITTED`, true: `ROLLBACK TO SAVEPOINT idem_call`}
)

func (s *Store) begin(ctx context.Context, req idem.BeginRequest) (*transaction, error) {
	conn, release, err := s.acquire(ctx)
	if err != nil {
		return nil, classify(err)
	}
	t := &transaction{store: s, conn: conn, release: release, own: s.binding == idem.BoundToTx, key: req.Key}
	if !t.own {
		t.idle = milliseconds(req.Idle)
	}
	if err := t.open(ctx); err != nil {
		t.Rollback(ctx)
		err = classify(err)
		if t.own {
			err = idem.Permanent(err)
		}
		return nil, err
	}
	return t, nil
}

// open begins, locks the key and reads its record, in one round trip. Each
// statement sees what had been committed when it began: the record is read after
// the key was locked.
func (t *transaction) open(ctx context.Context) (err error) {
	sql, id := &t.store.sql, digest(t.key)
	b := &pgx.Batch{}
	if t.own {
		b.BeginTx(pgx.TxOptions{BeginQuery: `SAVEPOINT idem_call`})
		b.Queue(sql.nested, id)
	} else {
		b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	}
	b.Queue(sql.lock, id, t.idle)
	b.Queue(sql.lookup, t.key.User, t.key.Scope, t.key.Key)

	answers := t.conn.SendBatch(ctx, b)
	t.tx.Tx = answers.Tx()
	defer func() { err = errors.Join(err, answers.Close()) }()
	if _, err := answers.Exec(); err != nil {
		return err
	}
	t.opened = true
	if t.own {
		if err := answers.QueryRow().Scan(&t.nested); err != nil {
			return err
		}
	}
	if err := answers.QueryRow().Scan(&t.locked, &t.began, nil); err != nil {
		return err
	}
	var a answer
	if err = answers.QueryRow().Scan(&a); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	t.rec = a.rec
	return err
}

// undo takes back what fn has written, and the lock with it: end locks again.
// So fn needs no savepoint of its own, which every call would pay for. Not in the
// batch of end: statements cannot be prepared in a transaction that an error of
// fn's has broken.
func (t *transaction) undo(ctx context.Context) error {
	if !t.own && t.conn.PgConn().TxStatus() == 'I' {
		return errEnded
	}
	t.undone = true
	_, err := t.conn.Exec(ctx, again[t.own])
	return err
}

var errEnded = idem.Permanent(errors.New("pg: the closure has ended its transaction by SQL"))

// milliseconds is d as the server takes it: zero would mean no limit.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(min(max(d.Milliseconds(), 1), 1<<31-1), 10)
}

// acquire returns the connection to work on.
func (s *Store) acquire(ctx context.Context) (*pgx.Conn, func(), error) {
	if pool, ok := s.db.(interface {
		Acquire(context.Context) (*pgxpool.Conn, error)
	}); ok {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		return c.Conn(), c.Release, nil
	}
	if conn := connOf(s.db); conn != nil {
		return conn, func() {}, nil
	}
	return nil, nil, fmt.Errorf("%w: pg: a transaction needs a database that is a pool, a connection or a transaction", idem.ErrInvalidOption)
}

// Record implements [idem.Transaction].
func (t *transaction) Record() (idem.Record, bool) { return t.rec, t.locked }

// Tx implements [idem.Transaction].
func (t *transaction) Tx() pgx.Tx { return &t.tx }

// leave gives the connection back.
func (t *transaction) leave() {
	t.tx.seal(t.conn)
	t.release()
}

// Rollback implements [idem.Transaction] and [idem.Enlisted].
func (t *transaction) Rollback(ctx context.Context) {
	t.tx.end()
	if t.own && !t.opened {
		return // a savepoint of this name is an outer call's
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := t.conn.Exec(ctx, rollback[t.own]); err != nil && !(t.own && refused(err)) {
		_ = t.conn.Close(ctx) // nothing of it must be kept: the server rolls back when it notices
	}
	t.leave()
}

// Finish implements [idem.Transaction].
func (t *transaction) Finish(ctx context.Context, req idem.FinishRequest) (time.Time, error) {
	if req.Undo {
		if err := t.undo(ctx); err != nil {
			t.Rollback(ctx)
			return time.Time{}, classify(err)
		}
	}
	c := req.Claim
	sql, attempt, seen := t.store.sql.finish, 1, c.Replace
	switch {
	case seen != nil:
		sql, attempt = t.store.sql.finishOver, seen.Attempt+1
	case t.own: // whose snapshot may not show a rival's record: SQLSTATE 40001, which finish would not raise
		sql, seen = t.store.sql.finishOver, &idem.Record{} // attempt 0 is no record's
	}
	args := append([]any{
		c.Key.User, c.Key.Scope, c.Key.Key, c.Hash.Sum, c.Hash.Version, string(req.State), uuid(c.Token),
		uuid(c.ExecutionID), attempt, c.Reclaimed, interval(c.Retention),
	}, responseArgs(req.Response)...)
	args = append(args, t.beganAt())
	if seen != nil {
		args = append(args, string(seen.State), uuid(seen.Token), seen.Attempt)
	}
	return t.end(ctx, sql, args, c.Token)
}

// Complete implements [idem.Enlisted].
func (t *transaction) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	return t.end(ctx, t.store.sql.completeOrRaise, append(completeArgs(req), t.beganAt()), req.Token)
}

// beganAt is what tells whether this is still the transaction that the call
// began, or nil if that is certain.
func (t *transaction) beganAt() *time.Time {
	if t.undone {
		return nil
	}
	return &t.began
}

// rival reports whether err is how a statement says that it found a rival's record.
func rival(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "23505" || pgErr.Code == "22012") // unique violation, division by zero
}

// end records the outcome and commits, in one round trip. The statement raises
// if it finds a rival's record, so that the commit is never reached.
func (t *transaction) end(ctx context.Context, sql string, args []any, token idem.ID) (completed time.Time, err error) {
	if t.conn.PgConn().IsBusy() {
		t.Rollback(ctx)
		return time.Time{}, idem.Permanent(errors.New("pg: the closure left rows or a batch open"))
	}
	t.tx.end()
	b := &pgx.Batch{}
	if t.undone {
		b.Queue(t.store.sql.lockOrRaise, digest(t.key))
	}
	b.Queue(sql, args...)
	b.Queue(commit[t.own])
	answers := t.conn.SendBatch(ctx, b)
	var raised error
	if t.undone {
		_, raised = answers.Exec()
	}
	if raised == nil {
		raised = answers.QueryRow().Scan(&completed)
	}
	_, err = answers.Exec()
	if closed := answers.Close(); err == nil {
		err = closed
	}
	switch {
	case raised == nil && err == nil:
		t.leave()
		return completed, nil
	case rival(raised):
		t.Rollback(ctx)
		return time.Time{}, idem.ErrLeaseLost
	case raised != nil:
		err = raised
	}
	if refused(err) || pgconn.SafeToRetry(err) { // the server has answered no, or was not asked
		t.Rollback(ctx)
		if t.own {
			return time.Time{}, idem.Permanent(err)
		}
		return time.Time{}, classify(err)
	}
	return t.find(ctx, token, err)
}

// refused reports whether err is a server's answer to the statement itself, and
// not that the session is at its end.
func refused(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Severity == "ERROR"
}

// findTimeout bounds the search for the outcome of a commit.
const findTimeout = 10 * time.Second

// find tells what became of a commit whose answer did not come. As long as the
// transaction's session is at work, it holds the key's lock. So once the lock is
// to be had elsewhere, the record that is there is the final one; without it, a
// commit may still be on its way.
func (t *transaction) find(ctx context.Context, token idem.ID, cause error) (time.Time, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
	defer cancel()
	_ = t.conn.Close(ctx)
	t.leave()
	unknown := func(err error) (time.Time, error) { return time.Time{}, idem.Unknown(errors.Join(cause, err)) }
	switch t.store.binding {
	case idem.BoundToTx: // whose commit cannot come any more
		return time.Time{}, idem.Permanent(cause)
	case idem.BoundToConn: // there is no other connection
		return unknown(nil)
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		again, err := t.store.begin(ctx, idem.BeginRequest{Key: t.key, Idle: findTimeout})
		if err == nil {
			rec, locked := again.Record()
			again.Rollback(ctx)
			switch {
			case locked && rec.Token == token && rec.State != idem.Processing:
				return rec.CompletedAt, nil
			case locked:
				return time.Time{}, cause
			}
		}
		select {
		case <-ctx.Done():
			return unknown(err)
		case <-time.After(pause):
		}
	}
}
