package storetests_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// TestMain lets this program serve as the process that a test starts, and may kill.
func TestMain(m *testing.M) {
	if role := os.Getenv(helperVariable); role != "" {
		helper(role)
		return
	}
	// These tests wait for the server most of the time.
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = parallel.Value.Set("4")
	}
	os.Exit(m.Run())
}
