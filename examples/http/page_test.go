package main

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPageHasTheClientsCode(t *testing.T) {
	t.Parallel()
	client, err := os.ReadFile("../../client/js/idem.js")
	if err != nil {
		t.Fatal(err)
	}
	copied, err := files.ReadFile("page/idem.js")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(client), string(copied)); diff != "" {
		t.Errorf("cp client/js/idem.js examples/http/page/ (-client +page):\n%s", diff)
	}
}

func TestPageNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	s := start(t)
	get := func(path string) reply {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return do(t, req)
	}
	index := get("/")
	if index.status != 200 || !strings.HasPrefix(index.header.Get("Content-Type"), "text/html") {
		t.Fatalf("answered %d, %v", index.status, index.header)
	}
	if policy := index.header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("Content-Security-Policy: %s", policy)
	}
	links := regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(index.body, -1)
	if len(links) < 3 {
		t.Errorf("found %d links", len(links))
	}
	for _, link := range links {
		if strings.Contains(link[1], "//") {
			t.Errorf("the page refers to %s", link[1])
		} else if got := get("/" + link[1]); got.status != 200 {
			t.Errorf("%s was answered with %d", link[1], got.status)
		}
	}
	if got := get("/nothing"); got.status != 404 {
		t.Errorf("/nothing was answered with %d", got.status)
	}
}
