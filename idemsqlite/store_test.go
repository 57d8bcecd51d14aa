package idemsqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
	"github.com/idem-go/idem/storetest"
)

func open(t testing.TB, path string, opts ...idemsqlite.Option) *idemsqlite.Store {
	t.Helper()
	s, err := idemsqlite.Open(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) idem.Store { return open(t, filepath.Join(t.TempDir(), "idem.db")) })
}
