package rapidtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
)

type kind string

const (
	claim    kind = "Claim"
	complete kind = "Complete"
	release  kind = "Release"
	renew    kind = "Renew"
	lookup   kind = "Lookup"
	purge    kind = "Purge"
)

// An op is a request and its answer.
type op struct {
	kind              kind
	idem.ClaimRequest // the others have some of its fields, and those that follow
	state             idem.State
	response          idem.Response
	limit             int

	rec       idem.Record
	found     bool
	completed time.Time
	deleted   int
	lost      bool // ErrLeaseLost

	call, back       time.Duration // when it was sent and its answer came, by the test's clock
	called, answered int64         // the same as places in the order of all these events
	player           int
	alone            bool // nothing else went on meanwhile
}

// send sends the request to the store. Of its errors the model knows one.
func (o *op) send(ctx context.Context, store idem.Store) (err error) {
	switch o.kind {
	case claim:
		o.rec, err = store.Claim(ctx, o.ClaimRequest)
		return err
	case complete:
		o.completed, err = store.Complete(ctx, idem.CompleteRequest{
			Key: o.Key, Token: o.Token, State: o.state, Response: o.response, Retention: o.Retention,
		})
	case release:
		err = store.Release(ctx, idem.ReleaseRequest{Key: o.Key, Token: o.Token, Retention: o.Retention})
	case renew:
		err = store.Renew(ctx, idem.RenewRequest{Key: o.Key, Token: o.Token, Lease: o.Lease, Retention: o.Retention})
	case lookup:
		o.rec, o.found, err = store.Lookup(ctx, o.Key)
		return err
	case purge:
		done, err := store.Purge(ctx, idem.PurgeRequest{Limit: o.limit})
		o.deleted = done.Deleted
		return err
	}
	if o.lost = errors.Is(err, idem.ErrLeaseLost); o.lost {
		return nil
	}
	return err
}

// short reports whether the op began something that a pause ends.
func (o *op) short() bool { return o.Lease == short || o.Retention == short }

// String says it in a line, in which keys and tokens are numbers.
func (o *op) String() string {
	answer := "done"
	switch {
	case o.lost:
		answer = "ErrLeaseLost"
	case o.kind == claim, o.found:
		answer = describe(o.rec)
	case o.kind == lookup:
		answer = "nothing"
	case o.kind == complete:
		answer = "at " + o.completed.Format(time.StampNano)
	case o.kind == purge:
		return fmt.Sprintf("Purge %d: %d deleted", o.limit, o.deleted)
	}
	text := fmt.Sprintf("%s key %s", o.kind, o.Key.Key)
	if o.kind != lookup {
		text += fmt.Sprintf(" %s", number(o.Token))
	}
	if o.Lease > 0 {
		text += fmt.Sprintf(" lease %v", o.Lease)
	}
	if o.Retention > 0 {
		text += fmt.Sprintf(" retention %v", o.Retention)
	}
	if o.state != "" {
		text += fmt.Sprintf(" %s %q", o.state, o.response.Body)
	}
	if o.Replace != nil {
		text += fmt.Sprintf(" replace (%s %s attempt %d)", o.Replace.State, number(o.Replace.Token), o.Replace.Attempt)
	}
	return text + ": " + answer
}

func describe(rec idem.Record) string {
	if rec.State == "" {
		return "the zero Record"
	}
	text := fmt.Sprintf("%s %s attempt %d, expires in %v", rec.State, number(rec.Token), rec.Attempt, rec.ExpiresIn)
	if rec.State == idem.Processing {
		return text + fmt.Sprintf(", lease left %v", rec.LeaseLeft)
	}
	return text + fmt.Sprintf(", %q, completed at %s", rec.Response.Body, rec.CompletedAt.Format(time.StampNano))
}

// number names a token by the number with which it ends.
func number(id idem.ID) string {
	if id == (idem.ID{}) {
		return "no token"
	}
	return fmt.Sprintf("token %d", binary.BigEndian.Uint32(id[12:]))
}
