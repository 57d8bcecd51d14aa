//go:build services

package idemhttp_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The JavaScript client, under Node, meets the middleware on the network on
// which the Transport does.
func TestOneEffectPerCallOfTheJavaScriptClient(t *testing.T) {
	t.Parallel()
	const calls, callers = 50, 10
	for _, script := range []string{"calls.js", "idem.js", "testing.js"} {
		must(os.ReadFile("../client/js/" + script)) // so that go test does not cache a result beyond a change of it
	}
	tr := newTrial(t)
	node := exec.CommandContext(t.Context(), "node", "../client/js/calls.js", tr.url,
		strconv.Itoa(calls), strconv.Itoa(callers), strconv.FormatInt(patience.Milliseconds(), 10))
	node.Stderr = t.Output()
	out, err := node.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	var got, want []string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("node printed %q: %v", out, err)
	}
	for i := range calls {
		_, settled := tr.body(i)
		want = append(want, "201 "+settled)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	tr.wantOneEffectPerCall(t, calls)
}
