package txtests_test

import (
	"os"
	"testing"
)

// TestMain lets this program serve as the process that a test starts, and kills.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	os.Exit(m.Run())
}
