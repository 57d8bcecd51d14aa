package idemwatermill

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
)

// Middleware returns the middleware. It works on a router or on a single
// handler; handlers have to be named. The handler finds [idem.ExecutionID] and
// its like in the message's context, and may mark an error with [idemmq.Reject].
// Bad options are an [idem.ErrInvalidOption].
func Middleware(store idem.Store, opts ...Option) (message.HandlerMiddleware, error) {
	cfg, err := configure(store, opts)
	if err != nil {
		return nil, err
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			return handle(cfg, store, h, msg)
		}
	}, nil
}

// produced is what is kept of a message.
type produced struct {
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Payload  []byte            `json:"payload"`
}

func handle(cfg *config, store idem.Store, h message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	key, err := cfg.keyOf(msg)
	if err != nil {
		return nil, &PoisonError{Reason: idemmq.ReasonInvalid, Err: err}
	}
	defer msg.SetContext(ctx) // the handler's ends with its run
	var (
		out []*message.Message
		own error // the handler's
		ran bool
	)
	res, err := idem.Do(ctx, store, key, cfg.payload(msg), func(ctx context.Context) ([]produced, idem.Status, error) {
		ran = true
		msg.SetContext(ctx)
		out, own = h(msg)
		return keep(out), status(own), own
	}, cfg.idem...)
	switch recorded := !res.CompletedAt.IsZero(); {
	case !ran:
		return answer(res, err)
	case own != nil && recorded:
		return nil, &PoisonError{Reason: idemmq.ReasonRejected, Err: own}
	case own != nil:
		return nil, err
	case recorded, errors.Is(err, idem.ErrNotRecorded): // in the second case it is done, too: not again
		return out, nil
	case err == nil:
		return nil, errNotKept
	}
	return nil, err
}

// errNotKept is for a disposition that does not keep a success.
var errNotKept = errors.New("idemwatermill: the handler's success was not to be kept")

// answer is what a duplicate comes to.
func answer(res idem.Result[[]produced], err error) ([]*message.Message, error) {
	switch dec := idemmq.Decide(res.Status, err); {
	case dec.Action == idemmq.DeadLetter:
		return nil, &PoisonError{Reason: dec.Reason, Err: err}
	case dec.Action == idemmq.Nak:
		return nil, err
	case err != nil: // the result was not kept: what had been produced may never have been published
		return nil, &PoisonError{Reason: ReasonOutputLost, Err: err}
	}
	out := make([]*message.Message, len(res.Value))
	for i, p := range res.Value {
		out[i] = message.NewMessage(p.UUID, p.Payload)
		for k, v := range p.Metadata {
			out[i].Metadata.Set(k, v)
		}
	}
	return out, nil
}

func keep(out []*message.Message) []produced {
	kept := make([]produced, len(out))
	for i, m := range out {
		kept[i] = produced{UUID: m.UUID, Metadata: m.Metadata, Payload: m.Payload}
	}
	return kept
}

// status makes a failure final in the terms of idem.Do, or leaves it open.
func status(err error) idem.Status {
	if idemmq.Rejected(err) {
		return 422
	}
	return 0
}
