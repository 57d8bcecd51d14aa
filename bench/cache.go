package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemcache"
	"github.com/idem-go/idem/pg"
)

// hot are keys that are asked for again and again.
func hot(_ string, n int) string { return settled("", n%1000) }

// replayCached is a replay through a cache that all callers share.
func replayCached(pool *pgxpool.Pool) operation {
	store, err := idemcache.New(pg.New(pool), 64<<20)
	return func(ctx context.Context, n int) error {
		if err != nil {
			return err
		}
		_, err := idem.Do(ctx, store, idem.Key{User: user, Scope: scope, Key: hot("", n)}, samplePayment,
			func(context.Context) (payment, idem.Status, error) { return samplePayment, 201, nil })
		return err
	}
}
