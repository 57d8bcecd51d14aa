package storetest

import (
	"context"

	"github.com/idem-go/idem"
)

var contextChecks = []check{
	{rule: "B43 a request whose ctx has ended must fail and change nothing", run: func(p *probe) {
		late := &probe{t: p.t, store: p.store}
		var cancel context.CancelFunc
		late.ctx, cancel = context.WithCancel(p.ctx)
		cancel()
		for _, owner := range []idem.ClaimRequest{p.live(), p.stale(), request(p.key())} {
			rival := p.takeover(owner.Key)
			before := p.snapshot(owner.Key)
			for name, op := range map[string]operation{
				"Claim": func(late *probe, _ idem.ClaimRequest) error {
					_, err := late.store.Claim(late.ctx, rival)
					return err
				},
				"Complete": complete,
				"Release":  release,
				"Renew":    renew,
				"Lookup": func(late *probe, req idem.ClaimRequest) error {
					_, _, err := late.store.Lookup(late.ctx, req.Key)
					return err
				},
			} {
				if op(late, owner) == nil {
					p.errorf("%s succeeded", name)
				}
				p.unchanged(before, "after a %s whose ctx had ended", name)
			}
		}
	}},
}
