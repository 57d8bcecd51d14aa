package storetest

import (
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// request returns a claim by a new owner. It stands for the claim afterwards.
func request(key idem.Key) idem.ClaimRequest {
	return idem.ClaimRequest{
		Key:   key,
		Hash:  idem.Hash{Version: 1, Sum: strings.Repeat("0123456789abcdef", 4)},
		Token: newID(), ExecutionID: newID(),
		Lease: long, Retention: long,
	}
}

// answer is an outcome like any other.
func answer(body string) idem.Response {
	return idem.Response{Status: 201, Codec: "json", CodecVersion: 1, Body: []byte(body)}
}

// claim sends a claim and returns the answer, whoever owns the key then.
func (p *probe) claim(req idem.ClaimRequest) idem.Record {
	p.t.Helper()
	rec, err := p.store.Claim(p.ctx, req)
	p.must(err, "Claim")
	return rec
}

// own sends a claim that must succeed.
func (p *probe) own(req idem.ClaimRequest) idem.Record {
	p.t.Helper()
	rec := p.claim(req)
	if rec.Token != req.Token || rec.State != idem.Processing {
		p.fatalf("a claim of a free key did not get it: %+v", rec)
	}
	return rec
}

// A settling operation, as the owner of the claim that req stands for.
type operation func(p *probe, req idem.ClaimRequest) error

func complete(p *probe, req idem.ClaimRequest) error {
	_, err := p.store.Complete(p.ctx, completion(req, idem.Succeeded, answer(`"done"`)))
	return err
}

func completion(req idem.ClaimRequest, state idem.State, r idem.Response) idem.CompleteRequest {
	return idem.CompleteRequest{Key: req.Key, Token: req.Token, State: state, Response: r, Retention: req.Retention}
}

func release(p *probe, req idem.ClaimRequest) error {
	return p.store.Release(p.ctx, idem.ReleaseRequest{Key: req.Key, Token: req.Token, Retention: req.Retention})
}

func renew(p *probe, req idem.ClaimRequest) error {
	return p.store.Renew(p.ctx, idem.RenewRequest{
		Key: req.Key, Token: req.Token, Lease: req.Lease, Retention: req.Retention,
	})
}

// now returns the store's time: that of a completion of another key.
func (p *probe) now() time.Time {
	p.t.Helper()
	req := request(p.key())
	p.own(req)
	now, err := p.store.Complete(p.ctx, completion(req, idem.Succeeded, idem.Response{}))
	p.must(err, "Complete")
	return now
}

// states are what may stand in the way of a claim. Each is made with a new key,
// by the claim that is returned.
var states = []struct {
	name string
	make func(*probe) idem.ClaimRequest
}{
	{"a live claim", (*probe).live},
	{"a stale claim", (*probe).stale},
	{"a released claim", (*probe).released},
	{"a settled record", (*probe).settled},
	{"an expired claim", (*probe).expiredClaim},
	{"an expired outcome", (*probe).expiredOutcome},
}

func (p *probe) live() idem.ClaimRequest {
	p.t.Helper()
	req := request(p.key())
	p.own(req)
	return req
}

func (p *probe) stale() idem.ClaimRequest {
	p.t.Helper()
	req := request(p.key())
	req.Lease = short
	p.own(req)
	p.untilStale(req.Key)
	req.Lease = long // for what is done with it later
	return req
}

func (p *probe) untilStale(key idem.Key) {
	p.t.Helper()
	p.until("a lease to end", func() bool { return p.lookup(key).LeaseLeft <= 0 })
}

func (p *probe) released() idem.ClaimRequest {
	p.t.Helper()
	req := p.live()
	p.must(release(p, req), "Release")
	return req
}

func (p *probe) settled() idem.ClaimRequest {
	p.t.Helper()
	req := p.live()
	p.must(complete(p, req), "Complete")
	return req
}

func (p *probe) expiredClaim() idem.ClaimRequest {
	p.t.Helper()
	req := request(p.key())
	req.Lease, req.Retention = short, short
	p.own(req)
	p.untilExpired(req.Key)
	req.Lease, req.Retention = long, long
	return req
}

func (p *probe) expiredOutcome() idem.ClaimRequest {
	p.t.Helper()
	req := request(p.key())
	p.own(req)
	req.Retention = short
	p.must(complete(p, req), "Complete")
	p.untilExpired(req.Key)
	req.Retention = long
	return req
}

// untilExpired waits for the record's end, and a little longer: the store may
// forget it then.
func (p *probe) untilExpired(key idem.Key) {
	p.t.Helper()
	var since time.Time
	p.until("a record to expire", func() bool {
		rec, found := p.find(key)
		if found && rec.Expired() && since.IsZero() {
			since = time.Now()
		}
		return !found || rec.Expired() && time.Since(since) > slack
	})
}

// takeover returns a claim that replaces the record that the key has now, or a
// plain one if the store has forgotten it.
func (p *probe) takeover(key idem.Key) idem.ClaimRequest {
	p.t.Helper()
	req := request(key)
	if rec, found := p.find(key); found {
		req.Replace = &rec
	}
	return req
}
