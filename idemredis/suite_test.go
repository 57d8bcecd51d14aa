package idemredis_test

import (
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
	"github.com/idem-go/idem/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	c := client(t)
	prefix := prefix(t)
	storetest.Run(t, func(testing.TB) idem.Store { return idemredis.New(c, idemredis.WithPrefix(prefix)) })
}
