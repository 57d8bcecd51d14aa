package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// guarded is a closure's transaction. Ending it is the affair of the call that
// it belongs to; ending one nested in it is the closure's.
type guarded struct {
	pgx.Tx
	nested   bool
	children []*guarded
}

var errNotYours = errors.New("pg: the transaction ends with the call that it belongs to: return an error to roll it back")

// Begin begins a nested transaction, a savepoint.
func (g *guarded) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := g.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	child := &guarded{Tx: tx, nested: true}
	g.children = append(g.children, child)
	return child, nil
}

// Commit refuses, unless the transaction is a nested one.
func (g *guarded) Commit(ctx context.Context) error {
	if g.nested || g.Tx == ended {
		return g.Tx.Commit(ctx)
	}
	return errNotYours
}

// Rollback refuses, unless the transaction is a nested one.
func (g *guarded) Rollback(ctx context.Context) error {
	if g.nested || g.Tx == ended {
		return g.Tx.Rollback(ctx)
	}
	return errNotYours
}

// end cuts off a closure that goes on using its transactions: the connection
// may already be somebody else's.
func (g *guarded) end() {
	g.Tx = ended
	for _, child := range g.children {
		child.end()
	}
}

// ended is a transaction that was closed before it began.
var ended = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()
