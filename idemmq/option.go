package idemmq

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem"
)

// Defaults of the options.
const (
	DefaultHeartbeat    = 10 * time.Second
	DefaultFirstBackoff = time.Second
	DefaultMaxBackoff   = time.Minute
)

// An Option changes how [Handle] works. A bad option makes Handle nak the
// delivery and return [idem.ErrInvalidOption]. Of two options for the same
// setting the later one wins, but those of [WithIdem] add up.
type Option interface{ apply(*config) error }

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

type config struct {
	key        func(Message) (idem.Key, error)
	payload    func(Message) any
	heartbeat  time.Duration
	first, max time.Duration
	deliveries int
	retention  time.Duration
	idem       []idem.Option
}

// configure returns the defaults and what opts change of them. In case of an
// error it is the defaults alone.
func configure(opts []Option) (config, error) {
	defaults := config{
		payload:   func(m Message) any { return m.Body },
		first:     DefaultFirstBackoff,
		max:       DefaultMaxBackoff,
		retention: idem.DefaultRetention,
	}
	c := defaults
	if err := apply(&c, opts); err != nil {
		return defaults, err
	}
	c.idem = append(c.idem, idem.WithRetention(c.retention))
	return c, nil
}

func apply(c *config, opts []Option) error {
	for _, o := range opts {
		if o == nil {
			return invalidOption("nil option")
		}
		if err := o.apply(c); err != nil {
			return err
		}
	}
	return nil
}

func invalidOption(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{idem.ErrInvalidOption}, args...)...)
}

// Options joins options into one, so that a program can keep its defaults in
// one place and pass them to every call.
func Options(opts ...Option) Option {
	return optionFunc(func(c *config) error { return apply(c, opts) })
}

// WithIdem sets options of [idem.Do], such as [idem.WithLease] and
// [idem.WithObserver]. [idem.WithRetention] has no effect here: use
// [WithRetention].
func WithIdem(opts ...idem.Option) Option {
	return optionFunc(func(c *config) error {
		c.idem = append(c.idem[:len(c.idem):len(c.idem)], opts...)
		return nil
	})
}

// WithRetention sets for how long a message is known to be handled, counted
// from when it was. Messages that were published longer ago are refused with
// [ErrTooOld], if the broker tells their age. It must be positive, and should be
// longer than the broker keeps a message. Default: [idem.DefaultRetention].
func WithRetention(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 {
			return invalidOption("retention %v is not positive", d)
		}
		c.retention = d
		return nil
	})
}

// WithKey sets the function that makes the key of a message, for example of an
// order number in its body. It must give the same key to each delivery of the
// same work and different keys to different work. The key's User must be set,
// to [idem.NoUser] where there are no users or tenants; its Scope is ignored,
// since it is always the consumer's name. If the function returns an error, the
// message is dead-lettered. Default: NoUser and the message's ID.
func WithKey(f func(Message) (idem.Key, error)) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil key function")
		}
		c.key = f
		return nil
	})
}

// WithPayload sets the function that returns what is compared with earlier
// deliveries under the same key, as the payload of [idem.Do]. Where producers
// encode a message anew when they repeat it, json.RawMessage(m.Body) ignores the
// order of names and spaces. Default: the bytes of the body.
func WithPayload(f func(Message) any) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil payload function")
		}
		c.payload = f
		return nil
	})
}

// WithHeartbeat sets how often a delivery is extended while its handler runs.
// It should be at most a third of what the broker waits for a decision. It must
// be positive. Default: a third of the message's AckWait, or [DefaultHeartbeat]
// where the broker does not tell it.
func WithHeartbeat(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 {
			return invalidOption("heartbeat %v is not positive", d)
		}
		c.heartbeat = d
		return nil
	})
}

// WithBackoff sets how long a message waits for its next delivery after a
// retryable failure: first after the first delivery, twice that after the
// second and so on, up to max, each shortened at random by up to half so that
// messages which failed together do not come back together. Both must be
// positive, and first not greater than max.
// Default: [DefaultFirstBackoff], [DefaultMaxBackoff].
func WithBackoff(first, max time.Duration) Option {
	return optionFunc(func(c *config) error {
		if first <= 0 || max < first {
			return invalidOption("backoff from %v to %v", first, max)
		}
		c.first, c.max = first, max
		return nil
	})
}

// WithMaxDeliveries dead-letters a message in place of the nak of its n-th
// delivery, where the broker counts deliveries. Let n be less than the broker's
// own limit, if there is one: after that, brokers drop messages. A message that
// is put aside while another delivery of it is running can be delivered again
// safely, like any other. Zero, the default, sets no limit; negative is refused.
func WithMaxDeliveries(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 0 {
			return invalidOption("limit of %d deliveries", n)
		}
		c.deliveries = n
		return nil
	})
}

// beat is the interval of the heartbeat.
func (c *config) beat(m Message) time.Duration {
	return cmp.Or(c.heartbeat, max(m.AckWait/3, 0), DefaultHeartbeat)
}

// backoff is how long to wait after a message has been tried n times.
func (c *config) backoff(n int) time.Duration {
	d := c.first
	for ; n > 1 && d < c.max; n-- {
		d *= 2
	}
	d = min(d, c.max)
	return d - rand.N(d/2+1)
}
