package storetest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

// txKeepChecks are about outcomes that are kept.
func txKeepChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"DoTx: the closure's writes and the outcome must become visible together", func(p *txProbe[Tx]) {
			key := p.key()
			first, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				p.write(ctx, tx, key)
				p.nothing(key, "before the commit")
				return idem.ExecutionID(ctx), 201, nil
			})
			p.must(err, "DoTx")
			p.wrote(key, 1, "after DoTx")
			rec := p.lookup(key)
			want := idem.Result[string]{
				Value: rec.ExecutionID.String(), Status: 201, ExecutionID: rec.ExecutionID.String(), Attempt: 1,
				CompletedAt: rec.CompletedAt, ExpiresAt: rec.CompletedAt.Add(idem.DefaultRetention),
			}
			if diff := cmp.Diff(want, first); diff != "" {
				p.errorf("the first answer (-want +got):\n%s", diff)
			}
			want.Replayed, want.ExpiresAt = true, rec.ExpiresAt
			for range 2 {
				replay, err := p.doTx(key, "payload", p.mustNotRunTx())
				p.must(err, "DoTx, repeated")
				if diff := cmp.Diff(want, replay); diff != "" {
					p.errorf("the replay (-want +got):\n%s", diff)
				}
			}
			p.wrote(key, 1, "after the replays")
			p.replays(key, "payload", want.Value)
		}},
		{"DoTx must record what Do records", func(p *txProbe[Tx]) {
			a, b := p.key(), p.key()
			_, err := p.do(a, "payload", returns("value", 201))
			p.must(err, "Do")
			_, err = p.doTx(b, "payload", p.ends(b, "value", 201, nil))
			p.must(err, "DoTx")
			was, is := p.lookup(a), p.lookup(b)
			if is.Token == (idem.ID{}) || is.ExecutionID == (idem.ID{}) {
				p.errorf("the record has the token %v and the execution %v", is.Token, is.ExecutionID)
			}
			p.expires(is, is.CompletedAt, is.CompletedAt, idem.DefaultRetention)
			for _, rec := range []*idem.Record{&was, &is} {
				rec.Token, rec.ExecutionID, rec.CompletedAt, rec.ExpiresAt = idem.ID{}, idem.ID{}, time.Time{}, time.Time{}
			}
			if diff := diffRecords(was, is); diff != "" {
				p.errorf("the records of Do and DoTx (-Do +DoTx):\n%s", diff)
			}
		}},
		{"DoTx must replay what Do recorded", func(p *txProbe[Tx]) {
			key := p.key()
			_, err := p.do(key, "payload", returns("value", 0))
			p.must(err, "Do")
			p.replaysTx(key, "payload", "value")
		}},
		{"DoTx must refuse another payload, and reveal nothing", func(p *txProbe[Tx]) {
			key := p.key()
			_, err := p.doTx(key, "payload", p.ends(key, "value", 201, nil))
			p.must(err, "DoTx")
			before := p.snapshot(key)
			res, err := p.doTx(key, "another", p.mustNotRunTx())
			p.wantError(err, idem.ErrPayloadMismatch, "another payload")
			if diff := cmp.Diff(idem.Result[string]{}, res); diff != "" {
				p.errorf("the result of a mismatch (-want +got):\n%s", diff)
			}
			p.unchanged(before, "after a mismatch")
		}},
		{"DoTx: a failed status without an error must keep the writes", func(p *txProbe[Tx]) {
			key := p.key()
			_, err := p.doTx(key, "payload", p.ends(key, "sorry", 409, nil))
			p.must(err, "DoTx")
			if state := p.lookup(key).State; state != idem.Failed {
				p.errorf("the state is %s", state)
			}
			p.wrote(key, 1, "after a failed status")
			p.replaysTx(key, "payload", "sorry")
		}},
		{"B83 DoTx: a value that is too large must be committed without it", func(p *txProbe[Tx]) {
			key, limit := p.key(), idem.WithMaxResultBytes(4)
			res, err := p.doTx(key, "payload", p.ends(key, "too long", 201, nil), limit)
			p.wantError(err, idem.ErrNotRecorded, "the first call")
			if res.Value != "too long" || res.CompletedAt.IsZero() {
				p.errorf("the first call got %+v", res)
			}
			p.wrote(key, 1, "after the first call")
			replay, err := p.doTx(key, "payload", p.mustNotRunTx(), limit)
			p.wantError(err, idem.ErrResultNotKept, "the replay")
			if replay.Status != 201 || !replay.Replayed {
				p.errorf("the replay is %+v", replay)
			}
		}},
		{"B75 DoTx: a value that cannot be encoded must be committed without it", func(p *txProbe[Tx]) {
			key := p.key()
			nan := func(ctx context.Context, tx Tx) (float64, idem.Status, error) {
				p.write(ctx, tx, key)
				return math.NaN(), 201, nil
			}
			res, err := idem.DoTx(p.ctx, p.txStore, key, "payload", nan)
			p.wantError(err, idem.ErrNotRecorded, "the first call")
			if !math.IsNaN(res.Value) {
				p.errorf("the first call got %+v", res)
			}
			_, err = idem.DoTx(p.ctx, p.txStore, key, "payload", nan)
			p.wantError(err, idem.ErrResultNotKept, "the replay")
			p.wrote(key, 1, "after both")
		}},
		{"DoTx: a status that cannot be kept must be committed without it", func(p *txProbe[Tx]) {
			key := p.key()
			_, err := p.doTx(key, "payload", p.ends(key, "value", 700, nil))
			p.wantError(err, idem.ErrNotRecorded, "the first call")
			_, err = p.doTx(key, "payload", p.mustNotRunTx())
			p.wantError(err, idem.ErrResultNotKept, "the replay")
			p.wrote(key, 1, "after both")
		}},
		{"B19 DoTx: an outcome must be committed although its caller has gone", func(p *txProbe[Tx]) {
			key := p.key()
			ctx, cancel := context.WithCancel(p.ctx)
			_, err := idem.DoTx(ctx, p.txStore, key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				p.write(ctx, tx, key)
				cancel()
				return "value", 0, nil
			})
			p.must(err, "DoTx")
			p.wrote(key, 1, "after DoTx")
			p.replaysTx(key, "payload", "value")
		}},
		{"DoTx must replace an outcome that has expired, as new work", func(p *txProbe[Tx]) {
			key := p.key()
			first, err := p.doTx(key, "payload", p.ends(key, "first", 0, nil), idem.WithRetention(short))
			p.must(err, "DoTx")
			p.untilExpired(key)
			second, err := p.doTx(key, "another", p.ends(key, "second", 0, nil))
			if err != nil || second.Replayed || second.ExecutionID == first.ExecutionID {
				p.errorf("got %+v, %v after %+v", second, err, first)
			}
			p.replaysTx(key, "another", "second")
			p.wrote(key, 2, "after both")
		}},
	}
}

var errUnforeseen = errors.New("unforeseen")
