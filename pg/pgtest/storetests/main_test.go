package storetests_test

import (
	"os"
	"testing"
)

// TestMain lets this program serve as the process that a test starts, and may kill.
func TestMain(m *testing.M) {
	if role := os.Getenv(helperVariable); role != "" {
		helper(role)
		return
	}
	os.Exit(m.Run())
}
