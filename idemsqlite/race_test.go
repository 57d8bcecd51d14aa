//go:build race

package idemsqlite_test

// slow says that SQLite's code, translated from C, is being checked pointer by
// pointer, which takes ten times as long.
const slow = true
