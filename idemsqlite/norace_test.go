//go:build !race

package idemsqlite_test

const slow = false
