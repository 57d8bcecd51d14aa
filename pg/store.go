package pg

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem"
)

// DB is what a [Store] needs of a database: a *pgxpool.Pool, a *pgx.Conn, a
// *pgxpool.Conn or a pgx.Tx, in any query exec mode.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// An Option is for [New], [Migrate] and [Migrations].
type Option func(*names)

// WithTable names the table, in at most 47 bytes. Default: "idempotency_requests".
func WithTable(name string) Option { return func(n *names) { n.table = name } }

// WithSchema names the schema of the table. Default: none, the search_path decides.
func WithSchema(name string) Option { return func(n *names) { n.schema = name } }

// WithoutCombining makes every request a statement of its own. Otherwise, over a
// pool, callers that wait for the same kind of statement share the next one.
// Default: combining.
func WithoutCombining() Option { return func(n *names) { n.alone = true } }

// Store is an [idem.Store] in Postgres. Use [New]. It is as safe for concurrent
// use as its database is: a pool is, a connection and a transaction are not.
type Store struct {
	db      DB
	sql     statements
	binding idem.Binding

	// Nil where every request is sent alone.
	claims      *combiner[idem.ClaimRequest, claimed]
	completions *combiner[idem.CompleteRequest, completed]
}

var (
	_ idem.Store = (*Store)(nil)
	_ idem.Bound = (*Store)(nil)
)

// New returns a store over db. It starts and migrates nothing: see [Migrate].
//
// Over a pool no connection is held while a closure runs. Over a connection
// leases are not renewed. Over a transaction, moreover, every statement runs
// under a savepoint, so that the transaction stays usable whatever happens;
// nothing is retried; and what the store records holds once it commits.
//
// The exec modes that read results as text (Exec and SimpleProtocol) need, as
// pgx does, a session with DateStyle ISO and bytea_output hex: the defaults.
func New(db DB, opts ...Option) *Store {
	binding, n := bindingOf(db), namesOf(opts)
	s := &Store{db: db, sql: statementsFor(n, binding), binding: binding}
	if binding == idem.BoundToNothing && !n.alone {
		s.combine()
	}
	return s
}

// Bound implements [idem.Bound].
func (s *Store) Bound() idem.Binding { return s.binding }

func bindingOf(db DB) idem.Binding {
	switch _, tx := db.(interface{ Commit(context.Context) error }); {
	case tx:
		return idem.BoundToTx
	case connOf(db) != nil:
		return idem.BoundToConn
	}
	return idem.BoundToNothing
}

// Claim implements [idem.Store]: one round trip, or two if a rival was first.
func (s *Store) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if s.claims != nil && req.Replace == nil {
		if c, err := s.claims.do(ctx, req); err != nil || c.valid {
			return c.rec, err
		}
	}
	return s.claimOne(ctx, req)
}

func (s *Store) claimOne(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	sql, args := s.sql.claim, []any{
		req.Key.User, req.Key.Scope, req.Key.Key, req.Hash.Sum, req.Hash.Version, uuid(req.Token),
		uuid(req.ExecutionID), req.Reclaimed, interval(req.Lease), interval(req.Retention), digest(req.Key),
	}
	seen := req.Replace
	if seen != nil {
		sql, args = s.sql.takeOver, append(args, string(seen.State), uuid(seen.Token), seen.Attempt)
	}
	var a answer
	err := s.queryRow(ctx, sql, args, &a)
	if !errors.Is(err, pgx.ErrNoRows) {
		return a.to(&req), err
	}
	rec, found, err := s.Lookup(ctx, req.Key)
	switch {
	case err != nil:
		return idem.Record{}, err
	case seen == nil && !found, seen != nil && found && rec.Token == seen.Token && rec.Attempt == seen.Attempt && rec.State == seen.State && free(rec):
		return req.Busy(), nil // nothing but a transaction stood in the way
	}
	return rec, nil
}

func free(rec idem.Record) bool {
	return rec.Expired() || rec.State == idem.Processing && rec.LeaseLeft <= 0
}

// digest is what a key is locked by. A collision of two keys makes one of them
// look busy while the other is; SHA-256, so that nobody can choose one.
func digest(k idem.Key) int64 {
	text := make([]byte, 0, 256)
	for _, part := range [...]string{k.User, k.Scope, k.Key} {
		text = append(binary.BigEndian.AppendUint64(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// Complete implements [idem.Store]: one round trip, or two if the token does
// not hold a claim.
func (s *Store) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	if s.completions != nil {
		if c, err := s.completions.do(ctx, req); err != nil || c.valid {
			return c.at, err
		}
	}
	return s.completeOne(ctx, req)
}

func (s *Store) completeOne(ctx context.Context, req idem.CompleteRequest) (completed time.Time, err error) {
	err = s.queryRow(ctx, s.sql.complete, completeArgs(req), &completed)
	if !errors.Is(err, pgx.ErrNoRows) {
		return completed, err
	}
	rec, found, err := s.Lookup(ctx, req.Key)
	switch {
	case err != nil:
		return time.Time{}, err
	case found && rec.Token == req.Token && rec.State != idem.Processing: // the same completion, sent again
		return rec.CompletedAt, nil
	}
	return time.Time{}, idem.ErrLeaseLost
}

func completeArgs(req idem.CompleteRequest) []any {
	return append([]any{
		req.Key.User, req.Key.Scope, req.Key.Key, uuid(req.Token), string(req.State), interval(req.Retention),
	}, responseArgs(req.Response)...)
}

// Release implements [idem.Store] in one round trip.
func (s *Store) Release(ctx context.Context, req idem.ReleaseRequest) error {
	return s.update(ctx, s.sql.release,
		req.Key.User, req.Key.Scope, req.Key.Key, uuid(req.Token), interval(req.Retention))
}

// Renew implements [idem.Store] in one round trip.
func (s *Store) Renew(ctx context.Context, req idem.RenewRequest) error {
	return s.update(ctx, s.sql.renew,
		req.Key.User, req.Key.Scope, req.Key.Key, uuid(req.Token), interval(req.Lease), interval(req.Retention))
}

// Lookup implements [idem.Store] in one round trip.
func (s *Store) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	var a answer
	err := s.queryRow(ctx, s.sql.lookup, []any{key.User, key.Scope, key.Key}, &a)
	if errors.Is(err, pgx.ErrNoRows) {
		return idem.Record{}, false, nil
	}
	return a.rec, err == nil, err
}

// Purge implements [idem.Store] in one round trip and, over a pool or a
// connection, one commit.
func (s *Store) Purge(ctx context.Context, req idem.PurgeRequest) (res idem.PurgeResult, err error) {
	var oldest pgtype.Timestamptz
	var now time.Time
	sql := s.sql.purge[0] + strconv.Itoa(req.Limit) + s.sql.purge[1]
	// Planned each time: a plan that was made while the table was small, and kept
	// with the prepared statement, would read all of it.
	mode := []any{pgx.QueryExecModeCacheDescribe}
	if err := s.queryRow(ctx, sql, mode, &res.Deleted, &oldest, &now); err != nil {
		return idem.PurgeResult{}, err
	}
	if oldest.Valid {
		res.Overdue = now.Sub(oldest.Time)
	}
	return res, nil
}

func (s *Store) queryRow(ctx context.Context, sql string, args []any, into ...any) error {
	return s.guard(ctx, func(db DB) error { return db.QueryRow(ctx, sql, args...).Scan(into...) })
}

// update carries out a statement that the claim's token fences.
func (s *Store) update(ctx context.Context, sql string, args ...any) error {
	return s.guard(ctx, func(db DB) error {
		tag, err := db.Exec(ctx, sql, args...)
		if err == nil && tag.RowsAffected() == 0 {
			return idem.ErrLeaseLost
		}
		return err
	})
}

// guard runs a statement, in a caller's transaction under a savepoint: an error
// must leave the transaction as it was.
func (s *Store) guard(ctx context.Context, run func(DB) error) error {
	switch s.binding {
	case idem.BoundToNothing:
		return classify(run(s.db))
	case idem.BoundToConn:
		err := classify(run(s.db))
		if err != nil && connOf(s.db).IsClosed() {
			err = idem.Permanent(err) // there is no other one
		}
		return err
	}
	savepoint, err := s.db.Begin(ctx)
	if err != nil {
		return idem.Permanent(err)
	}
	if err := run(savepoint); err != nil {
		_ = savepoint.Rollback(context.WithoutCancel(ctx))
		return idem.Permanent(classify(err)) // the caller decides whether its transaction runs again
	}
	return idem.Permanent(savepoint.Commit(ctx))
}

// connOf returns the connection of a database that is not a pool.
func connOf(db DB) *pgx.Conn {
	switch db := db.(type) {
	case *pgx.Conn:
		return db
	case interface{ Conn() *pgx.Conn }: // pgx.Tx, *pgxpool.Conn
		return db.Conn()
	}
	return nil
}

// classify marks the errors that repetition does not mend.
func classify(err error) error {
	var unreadable pgx.ScanArgError
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &unreadable):
		return errors.Join(idem.ErrCorruptRecord, err)
	case errors.As(err, &pgErr) && !passing(pgErr.Code):
		return idem.Permanent(err)
	}
	return err
}

// passing reports whether an SQLSTATE may be gone the next time.
func passing(state string) bool {
	switch state {
	case "08P01": // protocol violation
		return false
	case "55P03", // lock not available
		"25006",          // read-only, as after a failover
		"26000", "0A000": // a prepared statement is gone or out of date; pgx has forgotten it by now
		return true
	}
	switch state[:min(2, len(state))] {
	case "08", "40", "53", "57", "58": // connection, rollback, resources, operator, system
		return true
	}
	return false
}
