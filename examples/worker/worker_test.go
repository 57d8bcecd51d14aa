package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/idem-go/idem/pg/pgtest"
)

// The program judges itself: an error means that an order was not charged exactly
// once.

func TestInMemory(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, "", ""); err != nil {
		t.Error(err)
	}
	t.Log(out.String())
}

func TestInPostgres(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, "", dsn(t)); err != nil {
		t.Error(err)
	}
	t.Log(out.String())
}

// dsn is that of a schema of the test's own.
func dsn(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(pgtest.Server(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", pgtest.Config(t).ConnConfig.RuntimeParams["search_path"])
	u.RawQuery = q.Encode()
	return u.String()
}
