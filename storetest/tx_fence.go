package storetest

import (
	"context"
	"time"

	"github.com/idem-go/idem"
)

// txFenceChecks are about Finish and Rollback.
func txFenceChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"Finish must insert the record and commit what was written", func(p *txProbe[Tx]) {
			req := request(p.key())
			req.Hash.Version, req.Reclaimed = 3, true
			tx := p.begin(req.Key)
			p.write(p.ctx, tx.Tx(), req.Key)
			fin := finished(req, "value")
			fin.State, fin.Response.Status, fin.Response.Error = idem.Failed, 404, &idem.ErrorValue{Code: "code", Message: "message\x01"}
			completed, err := tx.Finish(p.ctx, fin)
			p.must(err, "Finish")
			want := idem.Record{
				State: idem.Failed, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID, Attempt: 1, Reclaimed: true,
				Response: fin.Response, CompletedAt: completed, ExpiresAt: completed.Add(long),
			}
			is := p.lookup(req.Key)
			is.CompletedAt, is.ExpiresAt = is.CompletedAt.In(completed.Location()), is.ExpiresAt.In(completed.Location())
			if diff := diffRecords(want, is); diff != "" {
				p.errorf("the record (-want +got):\n%s", diff)
			}
			p.wrote(req.Key, 1, "after Finish")
		}},
		{"Finish with Undo must keep the record alone", func(p *txProbe[Tx]) {
			req := request(p.key())
			tx := p.begin(req.Key)
			p.write(p.ctx, tx.Tx(), req.Key)
			fin := finished(req, "value")
			fin.Undo = true
			_, err := tx.Finish(p.ctx, fin)
			p.must(err, "Finish")
			p.wrote(req.Key, 0, "after Finish")
			if rec := p.lookup(req.Key); rec.Token != req.Token || rec.State != idem.Succeeded {
				p.errorf("the record is %+v", rec)
			}
		}},
		{"Finish must take the place of a free record as it was seen", func(p *txProbe[Tx]) {
			for _, state := range states[1:] {
				if state.name == "a settled record" {
					continue
				}
				req := p.takeover(state.make(p.probe).Key)
				attempt := 1
				if req.Replace != nil {
					attempt = req.Replace.Attempt + 1
				}
				tx := p.begin(req.Key)
				completed, err := tx.Finish(p.ctx, finished(req, "value"))
				p.must(err, "Finish in the place of "+state.name)
				rec := p.lookup(req.Key)
				if rec.Token != req.Token || rec.Attempt != attempt || rec.State != idem.Succeeded || !rec.CompletedAt.Equal(completed) {
					p.errorf("%s: the record is %+v after attempt %d", state.name, rec, attempt)
				}
			}
		}},
		{"Finish must be fenced by what was seen: a record that is in the way must stay, and everything be rolled back", func(p *txProbe[Tx]) {
			for _, state := range states {
				old := state.make(p.probe)
				seen, found := p.find(old.Key)
				if !found {
					continue // the store has forgotten it
				}
				other := func(change func(*idem.Record)) *idem.Record {
					rec := seen
					change(&rec)
					return &rec
				}
				for name, replace := range map[string]*idem.Record{
					"none": nil,
					"another state": other(func(rec *idem.Record) {
						rec.State = map[bool]idem.State{true: idem.Failed, false: idem.Processing}[rec.State == idem.Processing]
					}),
					"another token":   other(func(rec *idem.Record) { rec.Token = newID() }),
					"another attempt": other(func(rec *idem.Record) { rec.Attempt++ }),
				} {
					p.loses(old.Key, replace, state.name+", seen "+name)
				}
				if state.name == "a live claim" || state.name == "a settled record" {
					p.loses(old.Key, &seen, state.name+", seen as it is")
				}
			}
		}},
		{"Finish must find no record in the place of one that is gone, or insert", func(p *txProbe[Tx]) {
			req := request(p.key())
			req.Replace = &idem.Record{State: idem.Processing, Token: newID(), Attempt: 7}
			tx := p.begin(req.Key)
			p.write(p.ctx, tx.Tx(), req.Key)
			_, err := tx.Finish(p.ctx, finished(req, "value"))
			if err == nil {
				p.wrote(req.Key, 1, "after Finish")
				p.lookup(req.Key)
				return
			}
			p.wantError(err, idem.ErrLeaseLost, "Finish")
			p.nothing(req.Key, "after Finish")
		}},
		{"Rollback must undo everything, with a ctx that has ended too", func(p *txProbe[Tx]) {
			key := p.key()
			tx := p.begin(key)
			p.write(p.ctx, tx.Tx(), key)
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			tx.Rollback(ctx)
			p.runsAnew(key, "after Rollback")
		}},
		{"B43 BeginTx with a ctx that has ended must fail and leave nothing locked", func(p *txProbe[Tx]) {
			key := p.key()
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			if tx, err := p.Store.BeginTx(ctx, idem.BeginRequest{Key: key, Idle: long}); err == nil {
				p.errorf("BeginTx succeeds")
				tx.Rollback(p.ctx)
			}
			p.runsAnew(key, "after BeginTx")
		}},
		{"A transaction that is idle for longer than it may must not lock its key, and commit nothing", func(p *txProbe[Tx]) {
			key := p.key()
			tx, err := p.Store.BeginTx(p.ctx, idem.BeginRequest{Key: key, Idle: 20 * time.Millisecond})
			p.must(err, "BeginTx")
			_ = p.Write(p.ctx, tx.Tx(), p.name(key)) // it may be too late already
			p.until("the key to be free", func() bool {
				rival := p.begin(key)
				_, locked := rival.Record()
				rival.Rollback(p.ctx)
				return locked
			})
			req := request(key)
			if _, err := tx.Finish(p.ctx, finished(req, "value")); err == nil {
				p.errorf("Finish succeeds")
			}
			p.runsAnew(key, "after Finish")
		}},
		{"A transaction of no idle time must not be idle without limit", func(p *txProbe[Tx]) {
			key := p.key()
			tx, err := p.Store.BeginTx(p.ctx, idem.BeginRequest{Key: key, Idle: time.Nanosecond})
			if err != nil {
				return // it was over before it was answered
			}
			defer tx.Rollback(p.ctx)
			p.until("the key to be free", func() bool {
				rival := p.begin(key)
				_, locked := rival.Record()
				rival.Rollback(p.ctx)
				return locked
			})
		}},
	}
}

// loses fails the check if Finish succeeds, or leaves a trace.
func (p *txProbe[Tx]) loses(key idem.Key, seen *idem.Record, when string) {
	p.t.Helper()
	before := p.snapshot(key)
	req := request(key)
	req.Replace = seen
	tx := p.begin(key)
	p.write(p.ctx, tx.Tx(), key)
	_, err := tx.Finish(p.ctx, finished(req, "loser"))
	p.wantError(err, idem.ErrLeaseLost, "%s: Finish", when)
	p.wrote(key, 0, when)
	p.unchanged(before, "%s: after Finish", when)
}
