package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// guarded is a closure's transaction. Ending it is the affair of the call that
// it belongs to.
type guarded struct{ pgx.Tx }

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

// end cuts off a closure that goes on using its transaction: the connection may
// already be somebody else's.
func (g *guarded) end() { g.Tx = ended }

// ended is a transaction that was closed before it began.
var ended = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()
