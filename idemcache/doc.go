// Package idemcache answers replays from this process's memory: a retry of work
// that is done costs no round trip, and is answered even while the store is
// down. It wraps any [idem.Store] and is one itself:
//
//	store, err := idemcache.New(pg.New(pool), 64<<20) // at most 64 MiB
//	if err != nil {
//		return err
//	}
//	res, err := idem.Do(ctx, store, key, payload, charge)
//
// It pays where the same keys are asked for again and again, by eager clients or
// a broker that redelivers. A first run gains nothing.
//
// # What is kept
//
// Settled records only, since they do not change until their retention is over:
// whether a key is free, in progress or stale is always asked of the store. A
// record is kept from the first answer that shows it, so the first replay in each
// process is the store's. It is never served for longer than was left of its
// retention when that answer was asked for, by this process's monotonic clock, and
// [idem.Do] judges it as one from the store: the payload is compared each time.
//
// [idem.Peek], [idem.Resolve] and [Store.Lookup] see the store's truth.
//
// # What it cannot know
//
// A record that is deleted or repaired by hand is replayed as it was, in each
// process that has kept it, until its retention is over or the process ends. A look
// with [idem.Peek] sets it right, and [Store.Forget] is for the erasure of data;
// both in this process only.
//
// # Transactions
//
// A store over a connection or a transaction may see what will never be
// committed: [New] refuses it. pg.DoTx and pg.Begin take the store that is
// wrapped. They may be used beside the cache, on the same keys.
package idemcache
