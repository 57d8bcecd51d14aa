package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/idem-go/idem"
)

var doRaceChecks = []check{
	{rule: "B56 of many callers of one key exactly one must run", run: func(p *probe) {
		for range p.rounds(200) {
			p.oneRuns(p.key(), callers, 1)
		}
	}},
	{rule: "B56 of two callers of one key exactly one must run", run: func(p *probe) {
		for range p.rounds(1000) {
			p.oneRuns(p.key(), 2, 1)
		}
	}},
	{rule: "B35 of two callers with different payloads exactly one must run", run: func(p *probe) {
		for range p.rounds(1000) {
			var (
				key  = p.key()
				runs atomic.Int64
				errs [2]error
			)
			p.together(2, func(i int) {
				_, errs[i] = p.do(key, fmt.Sprint("payload ", i), func(context.Context) (string, idem.Status, error) {
					runs.Add(1)
					return "", 0, nil
				})
			})
			loser := errs[0]
			if loser == nil {
				loser = errs[1]
			}
			if n := runs.Load(); n != 1 || !errors.Is(loser, idem.ErrPayloadMismatch) || errs[0] != nil && errs[1] != nil {
				p.fatalf("%d closures ran, the errors are %v and %v", n, errs[0], errs[1])
			}
		}
	}},
	{rule: "B01 of many callers that find a dead owner's claim exactly one must run", run: func(p *probe) {
		for range p.rounds(20) {
			key := p.key()
			p.die(key, "payload")
			p.oneRuns(key, callers, 2)
		}
	}},
	{rule: "Of many callers that find a released key exactly one must run", run: func(p *probe) {
		for range p.rounds(50) {
			key := p.key()
			_, err := p.do(key, "payload", fails("", 503, errNoneLeft))
			p.wantError(err, errNoneLeft, "the first call")
			p.oneRuns(key, callers, 2)
		}
	}},
	{rule: "Of many callers that wait one must run, and all must get its answer", run: func(p *probe) {
		for range p.rounds(10) {
			if replays := p.oneRuns(p.key(), callers, 1, idem.WithWait(patience)); replays != callers-1 {
				p.fatalf("%d of %d callers that waited got the answer", replays, callers-1)
			}
		}
	}},
}

// oneRuns calls Do many times at once, and returns how many of the callers got
// the answer of the one that ran. The others found it in progress.
func (p *probe) oneRuns(key idem.Key, n, attempt int, opts ...idem.Option) (replays int64) {
	p.t.Helper()
	var (
		runs, replayed atomic.Int64
		values         = make([]string, n)
	)
	p.together(n, func(i int) {
		res, err := p.do(key, "payload", func(ctx context.Context) (string, idem.Status, error) {
			runs.Add(1)
			runtime.Gosched()
			return fmt.Sprint("by ", i, " in attempt ", idem.Attempt(ctx)), 0, nil
		}, opts...)
		switch {
		case errors.Is(err, idem.ErrInProgress):
			return
		case err != nil:
			p.errorf("Do: %v", err)
		case res.Replayed:
			replayed.Add(1)
		case res.Attempt != attempt:
			p.errorf("ran in attempt %d, want %d", res.Attempt, attempt)
		}
		values[i] = res.Value
	})
	if n := runs.Load(); n != 1 {
		p.fatalf("%d closures ran", n)
	}
	want := ""
	for _, v := range values {
		if v != "" && want != "" && v != want {
			p.fatalf("callers got different answers: %q and %q", v, want)
		}
		want = max(want, v)
	}
	return replayed.Load()
}
