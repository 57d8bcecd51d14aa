// Package idemsqlite is an [idem.Store] in an SQLite file: for programs on one
// host that must remember what they did when they start again, without a
// database server. It needs no cgo.
//
//	store, err := idemsqlite.Open("idem.db")
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	go idem.RunPurge(ctx, store, time.Minute)
//
// # Guarantees
//
// Any number of processes on one host may have the file open, each with any
// number of goroutines. A caller never sees SQLITE_BUSY: it waits for its turn
// to write, until its context ends. Records are read without a lock, so a
// replay waits for nobody.
//
// What has been acknowledged is on the disk: it survives kill -9, a crash of the
// system and a power cut. A process that dies leaves nothing half done, and a
// claim that it held lapses with its lease. Concurrent callers of a process share
// one write to the disk, so sixteen of them get much more done than one;
// [WithNormalSync] gives up the power cut for speed.
//
// The clock is the host's, in microseconds, read inside the statement that it
// decides. Whether the zone changes is nothing to it; do not set it back by more
// than you can bear leases to last longer.
//
// # Limits
//
// One host. The file may not be on a network file system, nor shared between
// virtual machines: SQLite's shared memory and locks do not reach that far, and
// the file would be corrupted. Containers on one kernel may share it through a
// local volume. For several hosts use package pg.
//
// One writer at a time: throughput is that of the disk's sync, shared by all.
//
// Do not rename, replace or delete the file while it is in use; a store that
// finds that this has happened refuses to claim anything ([ErrReplaced]). Do not
// open it with anything but SQLite in a process that uses it, not even to copy
// it: on Unix, closing a file drops the locks that the process holds on it. For
// a backup use VACUUM INTO or the backup of the sqlite3 command. The files
// ending in -wal and -shm beside it are a part of it.
//
// # Schema
//
// The table idempotency_requests has the columns of package pg's, with times
// as microseconds since 1970 and ids as 16 bytes. The view
// idempotency_requests_readable shows times as text and ids in hexadecimal:
//
//	sqlite3 idem.db "SELECT * FROM idempotency_requests_readable WHERE status = 'processing'"
//
// The file may have other tables. One that [Open] creates shrinks as records are
// purged (auto_vacuum = INCREMENTAL).
package idemsqlite
