package rapidtest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

const (
	long  = time.Hour            // does not end during a test
	short = time.Microsecond     // is over after a pause
	slack = 2 * time.Millisecond // stores may round times to milliseconds
	pause = slack + slack/2      // the timer may be early by the system's clock
	limit = time.Minute          // for one answer; never reached by a store that works
)

// A history is what was asked and answered about a few keys that nobody else
// uses.
type history struct {
	ctx   context.Context
	store idem.Store
	began time.Time
	id    idem.ID // its end is left to numbers
	keys  []idem.Key

	mu      sync.Mutex
	ops     []*op // those that were answered
	events  int64
	numbers uint32
}

func newHistory(ctx context.Context, store idem.Store) *history {
	h := &history{ctx: ctx, store: store, began: time.Now()}
	rand.Read(h.id[:12]) // never fails
	for n := range 2 {
		h.keys = append(h.keys, idem.Key{User: "rapidtest " + h.id.String(), Scope: "random", Key: strconv.Itoa(n + 1)})
	}
	return h
}

// clear purges what earlier sequences have left: purges of this one would have
// it to do instead, and the sequence could not be repeated.
func (h *history) clear() error {
	for {
		done, err := h.store.Purge(h.ctx, idem.PurgeRequest{Limit: 1000})
		if err != nil || done.Deleted < 1000 {
			return err
		}
	}
}

// newID returns an id that no other request has, and its number.
func (h *history) newID() (idem.ID, uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.numbers++
	id := h.id
	binary.BigEndian.PutUint32(id[12:], h.numbers)
	return id, h.numbers
}

// event numbers what happens, in its order: clocks may tell the same time twice.
func (h *history) event() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events++
	return h.events
}

// request sends a request and keeps it with its answer.
func (h *history) request(o *op) error {
	ctx, cancel := context.WithTimeout(h.ctx, limit)
	defer cancel()
	o.called, o.call = h.event(), time.Since(h.began)
	err := o.send(ctx, h.store)
	o.back, o.answered = time.Since(h.began), h.event()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
	return err
}

// A player sends requests that chance has chosen, many of which refer to what
// happened before. What a turn picks does not depend on what the store answers,
// or sequences would not shrink.
type player struct {
	*history
	pick func(n int, what string) int // from 0 to n-1; shrinking prefers 0
	send func(*op)                    // does not return if the test has failed
}

// earlier returns one of the ops that fit, or nil if there is none: mostly one
// of the last, for what is far back is outdated.
func (p *player) earlier(fits func(*op) bool) *op {
	back := p.pick(8, "how far back")
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*op
	for _, o := range slices.Backward(p.ops) {
		if fits(o) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[back%len(found)]
}

func isClaim(o *op) bool { return o.kind == claim }

func (p *player) key() idem.Key { return p.keys[p.pick(len(p.keys), "key")] }

func (p *player) duration(what string) time.Duration {
	return []time.Duration{long, long, short}[p.pick(3, what)]
}

// claim returns a claim with a token of its own: only the same request, sent
// again, has the same token.
func (p *player) claim() *op {
	token, n := p.newID()
	execution, _ := p.newID()
	return &op{kind: claim, ClaimRequest: idem.ClaimRequest{
		Key: p.key(), Hash: idem.Hash{Version: 1, Sum: fmt.Sprintf("%064x", n)}, Token: token, ExecutionID: execution,
		Reclaimed: p.pick(2, "reclaimed") == 1, Lease: p.duration("lease"), Retention: p.duration("retention"),
	}}
}

// takeOver sends the claim to replace the record that was seen, if there was one.
func (p *player) takeOver(o, seen *op) {
	if seen != nil && seen.rec.Attempt > 0 {
		o.Replace = &seen.rec
		p.send(o)
	}
}

// owned returns a request of an owner, mostly of one that there is or was, and
// now and then with another key's token, or with none.
func (p *player) owned(k kind) *op {
	o := &op{kind: k, ClaimRequest: idem.ClaimRequest{Key: p.key(), Retention: p.duration("retention")}}
	foreign := p.pick(8, "whether another's")
	if made := p.earlier(isClaim); made != nil && foreign < 7 {
		o.Token = made.Token
		if foreign < 6 {
			o.Key = made.Key
		}
	}
	return o
}

// An action is a turn of a player.
type action struct {
	name string
	do   func(*player)
}

var actions = []action{
	{"claim", func(p *player) { p.send(p.claim()) }},
	{"claim again", func(p *player) {
		if o := p.earlier(isClaim); o != nil {
			p.send(&op{kind: claim, ClaimRequest: o.ClaimRequest})
		}
	}},
	{"look and take over", func(p *player) {
		o := p.claim()
		seen := &op{kind: lookup, ClaimRequest: idem.ClaimRequest{Key: o.Key}}
		p.send(seen)
		p.takeOver(o, seen)
	}},
	{"take over what was seen", func(p *player) {
		o := p.claim()
		p.takeOver(o, p.earlier(func(seen *op) bool { return seen.Key == o.Key && seen.rec.Attempt > 0 }))
	}},
	{"complete", func(p *player) {
		o := p.owned(complete)
		_, n := p.newID()
		o.state, o.response = idem.Succeeded, idem.Response{Status: 201, Codec: "json", CodecVersion: 1, Body: fmt.Append(nil, n)}
		if p.pick(2, "failed") == 1 {
			o.state, o.response = idem.Failed, idem.Response{Status: 409, Error: &idem.ErrorValue{Code: "conflict", Message: fmt.Sprint(n)}}
		}
		p.send(o)
	}},
	{"release", func(p *player) { p.send(p.owned(release)) }},
	{"renew", func(p *player) {
		o := p.owned(renew)
		o.Lease = p.duration("lease")
		p.send(o)
	}},
	{"look", func(p *player) { p.send(&op{kind: lookup, ClaimRequest: idem.ClaimRequest{Key: p.key()}}) }},
	{"purge", func(p *player) { p.send(&op{kind: purge, limit: []int{1000, 1}[p.pick(2, "limit")]}) }},
}
