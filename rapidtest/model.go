package rapidtest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idem"
)

// A state is what the model knows of one key: the requests that made its
// record. No claim means no record.
type state struct {
	claim   *op
	attempt int
	lease   *op // that set the lease: the claim or a renewal
	end     *op // the completion or the release, if there was one
}

// step returns the states in which a key that was in state s can be after the
// answer to o: none if the answer is wrong. A record that has expired may have
// been forgotten by the store itself.
func (s state) step(o *op) []state {
	next := s.answered(o)
	if s.claim != nil {
		if may, _ := s.expiry().over(o); may {
			next = append(next, state{}.answered(o)...)
		}
	}
	return next
}

func (s state) answered(o *op) []state {
	right := false
	switch o.kind {
	case claim:
		return s.claimed(o)
	case lookup:
		right = o.found == (s.claim != nil) && s.shows(o)
	case purge:
		left := s.claim != nil && o.deleted < o.limit
		if left {
			_, left = s.expiry().over(o)
		}
		right = o.deleted <= o.limit && !left
	case complete:
		switch {
		case !s.heldBy(o):
			right = o.lost
		case s.end == nil:
			s.end, right = o, !o.lost && !o.completed.IsZero()
		default: // it came again
			right = !o.lost && o.completed.Equal(s.end.completed)
		}
	default:
		held := s.heldBy(o) && s.end == nil
		right = o.lost != held
		switch {
		case held && o.kind == release:
			s.end = o
		case held:
			s.lease = o
		}
	}
	if right {
		return []state{s}
	}
	return nil
}

func (s state) claimed(o *op) (next []state) {
	if reflect.DeepEqual(o.rec, o.Busy()) {
		if o.alone {
			return nil
		}
		return []state{s}
	}
	may, must := s.claimable(o)
	if n := (state{claim: o, attempt: s.attempt + 1, lease: o}); may && n.shows(o) {
		next = append(next, n)
	}
	if !must && s.shows(o) {
		next = append(next, s)
	}
	return next
}

// claimable reports whether the claim may succeed, and whether it must.
func (s state) claimable(o *op) (may, must bool) {
	seen := o.Replace
	if s.claim == nil || seen == nil {
		free := s.claim == nil && seen == nil
		return free, free
	}
	is := s.record()
	switch {
	case is.State != seen.State, is.Token != seen.Token, is.Attempt != seen.Attempt:
		return false, false
	case s.released():
		return true, true
	}
	may, must = s.expiry().over(o)
	if s.end == nil {
		mayToo, mustToo := s.leaseEnd().over(o)
		may, must = may || mayToo, must || mustToo
	}
	return may, must
}

func (s state) heldBy(o *op) bool {
	return s.claim != nil && !s.released() && s.claim.Token == o.Token
}

func (s state) released() bool { return s.end != nil && s.end.kind == release }

// record returns the key's record, without its times to come.
func (s state) record() idem.Record {
	if s.claim == nil {
		return idem.Record{}
	}
	rec := idem.Record{
		State: idem.Processing, Hash: s.claim.Hash, Token: s.claim.Token, ExecutionID: s.claim.ExecutionID,
		Attempt: s.attempt, Reclaimed: s.claim.Reclaimed,
	}
	switch {
	case s.released():
		rec.Token = idem.ID{}
	case s.end != nil:
		rec.State, rec.Response, rec.CompletedAt = s.end.state, s.end.response, s.end.completed
	}
	return rec
}

// shows reports whether the record that o got is the key's.
func (s state) shows(o *op) bool {
	want, got := s.record(), o.rec
	if s.claim != nil {
		if !s.expiry().leaves(got.ExpiresIn, o) || want.State == idem.Processing && !s.leaseEnd().leaves(got.LeaseLeft, o) {
			return false
		}
		want.LeaseLeft, want.ExpiresIn, want.ExpiresAt = got.LeaseLeft, got.ExpiresIn, got.ExpiresAt
	}
	if got.CompletedAt.Equal(want.CompletedAt) { // in whatever zone
		got.CompletedAt = want.CompletedAt
	}
	return reflect.DeepEqual(want, got)
}

func (s state) leaseEnd() span {
	if s.released() {
		return s.end.span(0)
	}
	return s.lease.span(s.lease.Lease)
}

func (s state) expiry() span {
	if s.end != nil {
		return s.end.span(s.end.Retention)
	}
	return s.lease.span(s.lease.Lease + s.lease.Retention)
}

func (s state) String() string {
	if s.claim == nil {
		return "no record"
	}
	rec := s.record()
	text := fmt.Sprintf("%s %s attempt %d", rec.State, number(rec.Token), rec.Attempt)
	if s.end != nil {
		return text + fmt.Sprintf(" (retention %v)", s.end.Retention)
	}
	return text + fmt.Sprintf(" (lease %v, retention %v)", s.lease.Lease, s.lease.Retention)
}

// A span is between which times of the test's clock something ends. The store
// has set the end by its own clock, at some time while a request was on its way.
type span struct{ from, to time.Duration }

// span is when the duration ends that o has begun.
func (o *op) span(d time.Duration) span { return span{o.call + d - slack, o.back + d + slack} }

// over reports whether the end may have come when the store answered o, and
// whether it must have.
func (s span) over(o *op) (may, must bool) { return o.back >= s.from, o.call >= s.to }

// leaves reports whether the time that o says is left can be right. What is
// over has zero or less left.
func (s span) leaves(left time.Duration, o *op) bool {
	may, _ := s.over(o)
	return left <= max(0, s.to-o.call) && (left >= s.from-o.back || may && left <= 0)
}
