package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// guarded is a closure's transaction. Ending it is the affair of the call that
// it belongs to.
type guarded struct {
	pgx.Tx
	branched pgx.Tx // the same, once pgx has made more of it: nested ones, large objects
}

var errNotYours = errors.New("pg: the transaction ends with the call that it belongs to: return an error to roll it back")

// Commit refuses.
func (g *guarded) Commit(context.Context) error { return g.refuse() }

// Rollback refuses.
func (g *guarded) Rollback(context.Context) error { return g.refuse() }

func (g *guarded) refuse() error {
	if g.Tx == ended {
		return pgx.ErrTxClosed
	}
	return errNotYours
}

// Begin begins a nested transaction.
func (g *guarded) Begin(ctx context.Context) (pgx.Tx, error) {
	g.branched = g.Tx
	return g.Tx.Begin(ctx)
}

// LargeObjects gives access to large objects.
func (g *guarded) LargeObjects() pgx.LargeObjects {
	g.branched = g.Tx
	return g.Tx.LargeObjects()
}

// end cuts off a closure that goes on using its transaction: the connection may
// already be somebody else's.
func (g *guarded) end() { g.Tx = ended }

// seal does the same for what pgx has made of its transaction. pgx marks a transaction closed only when it commits it, but the
// commit went by another way: a commit that never reaches the wire does it.
func (g *guarded) seal(conn *pgx.Conn) {
	if g.branched == nil || conn.PgConn().TxStatus() != 'I' { // a savepoint: the connection stays the caller's
		return
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = g.branched.Commit(gone)
}

// ended is a transaction that was closed before it began.
var ended = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()
