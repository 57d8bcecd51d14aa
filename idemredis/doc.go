// Package idemredis is an [idem.Store] in Redis or Valkey: one server, Sentinel
// or Cluster.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	store := idemredis.New(client)
//	if err := store.Check(ctx); err != nil {
//		log.Print(err) // the server may forget what it is to remember
//	}
//
// [New] starts nothing and asks the server nothing. Nor does a store warn by itself
// of a server that may forget records: a store has no observer (that is an option of
// a call, which a store does not see), so call [Store.Check] when your program
// starts. A first run takes two round trips, a replay one.
//
// # Guarantees
//
// A record is one key, and each operation one Lua script: of any number of
// callers one gets the claim. Completing, releasing and renewing need the token
// of the claim. The server's clock is the only one.
//
// While two requests are under way, further callers of a store wait, and share the
// next round trip: a pipeline of their scripts. That needs a client of one server
// or of Sentinel with ContextTimeoutEnabled; in a Cluster each goes alone, since a
// node that is down would hold up the requests for the others.
//
// # What Redis may lose
//
// Redis acknowledges before its replicas and, by default, its disk have what it
// acknowledges. A failover or a crash can lose the last writes: then a key is
// absent, or in progress although it was completed, and its work is done again.
// So can eviction. An owner whose claim was lost gets [idem.ErrLeaseLost] when
// it completes; its record is not made again. See docs/redis.md for settings,
// and for when to use package pg instead.
//
// # Records
//
// The key is the prefix and, in braces, the SHA-256 of the identity: no text of
// a user decides on the slot of a cluster. It is a string of words, with a space
// after each:
//
//	1               the version of this format
//	expires         when the record counts as absent
//	ends            when the lease does; or when the outcome was recorded
//	state           processing, succeeded or failed
//	token           of the claim, in hexadecimal; - once released
//	attempt         the number of claims
//	execution       the execution id, in hexadecimal without dashes
//	reclaimed       0 or 1
//	hash_version    of the payload's hash
//	hash            of the payload
//
// and of an outcome, behind these,
//
//	status          0 if it was not one that can be kept
//	error           code and message, in Go's quotes; - without an error
//	codec           in Go's quotes, and its version; - without a value
//	body            all that follows, as the codec wrote it
//
// Instants are microseconds since 1970. A record that is not like this is
// [idem.ErrCorruptRecord]: nothing runs.
//
// Every key has a time to live: a claim's is lease and retention, an outcome's
// its retention, each rounded up to a millisecond, at most 200 years. Duplicates
// do not prolong it. If somebody takes it away, the next claim gives it back, and a
// record that is past its end counts as absent even if Redis still has it. If
// somebody gives an outcome another time to live, it is kept for that time.
package idemredis
