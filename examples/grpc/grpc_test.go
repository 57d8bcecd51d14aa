package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestEveryOrderIsChargedOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		if err := run(t.Context(), &bytes.Buffer{}, seed, 6, false); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// The network is as bad as it is said to be, or the example would show nothing.
func TestWithoutIdemOrdersAreChargedTwice(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), &out, 1, 6, true); err == nil || !strings.Contains(out.String(), "TIMES") {
		t.Errorf("ended with %v:\n%s", err, &out)
	}
}
