package idemsqlite_test

import (
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
	"github.com/idem-go/idem/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	t.Run("one store", func(t *testing.T) {
		store := open(t, file(t))
		storetest.Run(t, func(testing.TB) idem.Store { return store })
	})
	t.Run("several stores on one file", func(t *testing.T) {
		path := file(t)
		s := storetest.Spread(open(t, path, idemsqlite.WithNormalSync()), open(t, path, idemsqlite.WithNormalSync()))
		storetest.Run(t, func(testing.TB) idem.Store { return s })
	})
}
