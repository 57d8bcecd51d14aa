package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

const (
	manyKeys    = 10_000
	manyCallers = 64
	manyTime    = 2 * time.Second // after which a slow store need not begin with another key
)

var doManyChecks = []check{
	{rule: "Of up to ten thousand keys at once each must run once and keep its own answer", run: func(p *probe) {
		var (
			end   = time.Now().Add(manyTime)
			keys  [manyKeys]idem.Key
			runs  [manyKeys]atomic.Int64
			begun atomic.Int64
		)
		call := func(i int) (idem.Result[string], error) {
			return p.do(keys[i], fmt.Sprint("payload ", i), func(context.Context) (string, idem.Status, error) {
				runs[i].Add(1)
				return fmt.Sprint("value ", i), 0, nil
			})
		}
		for i := range keys {
			keys[i] = p.key()
		}
		p.together(manyCallers, func(int) {
			for (thorough || time.Now().Before(end)) && !p.hasFailed() {
				i := int(begun.Add(1)) - 1
				if i >= manyKeys {
					return
				}
				if res, err := call(i); err != nil || res.Replayed || res.Attempt != 1 {
					p.errorf("key %d: got %+v, %v", i, res, err)
				}
			}
		})
		all := min(int(begun.Load()), manyKeys)
		p.together(manyCallers, func(caller int) {
			for i := caller; i < all && !p.hasFailed(); i += manyCallers {
				res, err := call(i)
				if want := fmt.Sprint("value ", i); err != nil || !res.Replayed || res.Value != want {
					p.errorf("key %d, repeated after %d others: got %+v, %v", i, all, res, err)
				}
				if n := runs[i].Load(); n != 1 {
					p.errorf("key %d: %d closures ran", i, n)
				}
			}
		})
	}},
}
