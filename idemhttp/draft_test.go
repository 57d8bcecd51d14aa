package idemhttp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/idemhttp"
)

// The lines of draft-ietf-httpapi-idempotency-key-header-07 by their numbers in
// docs/http.md, which names each of these tests.

func TestDraft01ValueIsAStructuredFieldString(t *testing.T) {
	t.Parallel()
	server := once(t, created)
	first := post(t, server.URL, `"abc"`, "{}")
	wantReplay(t, first, post(t, server.URL, `"abc"`, "{}"))
	wantReplay(t, first, post(t, server.URL, `abc`, "{}")) // the extension
	wantProblem(t, post(t, server.URL, "", "{}", header("Idempotency-Key", `"abc"`, `"abc"`)), 400, idemhttp.CodeInvalidKey)
}

func TestDraft02KeyIsNotReusedWithAnotherPayload(t *testing.T) {
	t.Parallel()
	server := once(t, created)
	post(t, server.URL, `"abc"`, `{"amount":1}`)
	wantProblem(t, post(t, server.URL, `"abc"`, `{"amount":2}`), 422, idemhttp.CodePayloadMismatch)
	if got := post(t, server.URL, `"def"`, `{"amount":2}`); got.Status != 201 {
		t.Errorf("a new key got %d", got.Status)
	}
}

func TestDraft03ServerDefinesUniqueness(t *testing.T) {
	t.Parallel()
	// A key is unique to its user and its scope.
	server := once(t, created, idemhttp.WithScope(func(r *http.Request) string { return r.Header.Get("X-Scope") }))
	base := header("X-Scope", "a")
	post(t, server.URL, "k", "{}", base)
	for name, other := range map[string][]change{
		"another user":  {base, header("X-User", "bob")},
		"another scope": {header("X-Scope", "b")},
	} {
		if got := post(t, server.URL, "k", "{}", other...); got.replayed() || got.Status != 201 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// page is docs/http.md.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDraft04ExpiryIsPublished(t *testing.T) {
	t.Parallel()
	if !strings.Contains(page(t), "14 days") {
		t.Error("docs/http.md does not tell how long keys live")
	}
	t.Run("and kept", TestRetentionEnds)
}

func TestDraft05SpecificationIsPublished(t *testing.T) {
	t.Parallel()
	text := page(t)
	for _, code := range []string{
		idemhttp.CodeInProgress, idemhttp.CodePayloadMismatch, idemhttp.CodeInvalidKey, idemhttp.CodeUnavailable,
		idemhttp.CodeOutcomeUnknown, idemhttp.CodeLeaseLost, idemhttp.CodeResultNotKept, idemhttp.CodeUnreadable,
		idemhttp.CodeMisconfigured, idemhttp.CodeExecutionFailed, idemhttp.CodeUnauthenticated, idemhttp.CodeForbidden,
		idemhttp.CodePayloadTooLarge, idemhttp.CodeInvalidRequest, idemhttp.CodeInternalError,
	} {
		if !strings.Contains(text, "### "+code+"\n") { // the anchor that problems link to
			t.Errorf("docs/http.md does not describe %s", code)
		}
	}
	for _, name := range idemhttp.DefaultHeaders() {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/http.md does not list the header %s", name)
		}
	}
}

func TestDraft06FingerprintMayBeSelected(t *testing.T) {
	t.Parallel()
	server := once(t, created, idemhttp.WithFingerprint(func(_ *http.Request, body []byte) (any, error) {
		var order struct{ Amount int }
		err := json.Unmarshal(body, &order)
		return order, err
	}))
	first := post(t, server.URL, "k", `{"amount":1,"sent":"10:00"}`)
	wantReplay(t, first, post(t, server.URL, "k", `{"amount":1,"sent":"10:01"}`))
	wantProblem(t, post(t, server.URL, "k", `{"amount":2,"sent":"10:00"}`), 422, idemhttp.CodePayloadMismatch)
}

func TestDraft07KeyAndFingerprintAreEnforced(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	server := once(t, counted(&runs, created))
	for range 3 {
		post(t, server.URL, "k", `{"a":1}`)
		post(t, server.URL, "k", `{"a":2}`)
	}
	wantRuns(t, &runs, 1)
}

func TestDraft08FirstRequestIsProcessedNormally(t *testing.T) {
	t.Parallel()
	bare := post(t, serve(t, http.HandlerFunc(created)).URL, "k", "{}")
	first := post(t, once(t, created).URL, "k", "{}")
	if first.replayed() || first.Status != bare.Status || first.Body != bare.Body {
		t.Errorf("the first request got %v, without the middleware %v", first, bare)
	}
}

func TestDraft09RetryGetsTheEarlierResult(t *testing.T) {
	t.Parallel()
	for _, status := range []int{201, 422} {
		server := once(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, "result")
		})
		wantReplay(t, post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}"))
	}
}

func TestDraft10ConcurrentRequestIs409(t *testing.T) {
	t.Parallel()
	t.Run("in progress", TestInProgress)
}

func TestDraft11MissingKeyIs400WhereRequired(t *testing.T) {
	t.Parallel()
	wantProblem(t, post(t, once(t, created, idemhttp.RequireKey()).URL, "", "{}"), 400, idemhttp.CodeInvalidKey)
	if got := post(t, once(t, created).URL, "", "{}"); got.Status != 201 {
		t.Errorf("where it is not: %d", got.Status)
	}
}

func TestDraft12AnotherPayloadIs422(t *testing.T) {
	t.Parallel()
	server := once(t, created)
	post(t, server.URL, "k", "[1]")
	wantProblem(t, post(t, server.URL, "k", "[2]"), 422, idemhttp.CodePayloadMismatch)
}

func TestDraft13ErrorsAreProblemDocumentsWithALink(t *testing.T) {
	t.Parallel()
	got := post(t, once(t, created).URL, `""`, "{}")
	var problem struct {
		Type, Title, Detail, Code string
		Status                    int
	}
	if err := json.Unmarshal([]byte(got.Body), &problem); err != nil {
		t.Fatal(err)
	}
	if problem.Status != got.Status || problem.Title == "" || problem.Detail == "" || !strings.Contains(problem.Type, "docs/http.md#") {
		t.Errorf("the problem is %+v", problem)
	}
	wantProblem(t, got, 400, idemhttp.CodeInvalidKey)
}

func TestDraft14OnlyWhatMayBeRetriedSaysSo(t *testing.T) {
	t.Parallel()
	for _, err := range allErrors {
		p := idemhttp.ProblemFor(err)
		retry := map[string]bool{idemhttp.CodeInProgress: true, idemhttp.CodeUnavailable: true, idemhttp.CodeLeaseLost: true}[p.Code]
		if retry != (p.RetryAfter > 0) {
			t.Errorf("%s: retry after %v", p.Code, p.RetryAfter)
		}
	}
}

func TestDraft15WhichErrorsAreStoredIsDocumented(t *testing.T) {
	t.Parallel()
	if !strings.Contains(page(t), "401, 403, 408, 425, 429 and 5xx") {
		t.Error("docs/http.md does not tell which errors are stored")
	}
	t.Run("and so it is", TestB87WhatIsKeptGoesByTheStatus)
}

func TestDraft16KeyFormatIsPublishedAndCheckedFirst(t *testing.T) {
	t.Parallel()
	if !strings.Contains(page(t), "1 to 255 characters of printable ASCII") {
		t.Error("docs/http.md does not tell the format of keys")
	}
	var runs atomic.Int64
	server := once(t, counted(&runs, created))
	wantProblem(t, post(t, server.URL, strings.Repeat("k", 256), "{}"), 400, idemhttp.CodeInvalidKey)
	wantRuns(t, &runs, 0)
	// The look-up is composite with the caller.
	post(t, server.URL, "k", "{}")
	if post(t, server.URL, "k", "{}", header("X-User", "bob")).replayed() {
		t.Error("Bob got Alice's answer")
	}
}
