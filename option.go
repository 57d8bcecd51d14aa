package idem

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/idem-go/idem/codec"
)

// Defaults of the options.
const (
	DefaultLease          = time.Minute
	DefaultRetention      = 14 * 24 * time.Hour
	DefaultStoreTimeout   = 5 * time.Second
	DefaultMaxResultBytes = 1 << 20
)

// An Option changes how one call of [Do] works. A bad option makes Do return
// [ErrInvalidOption] before anything touches the store. Of two options for the
// same setting the later one wins.
type Option interface{ apply(*config) error }

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

type config struct {
	lease, retention, wait, timeout time.Duration

	stale       StalePolicy
	disposition func(Outcome) Disposition
	errors      map[string]error
	codec       codec.Codec
	maxResult   int
	hashKeys    [][]byte
	detached    bool
	observer    func(context.Context, Event)
}

// set gives the config its defaults and what opts change of them.
func (c *config) set(opts []Option) error {
	*c = config{
		lease:       DefaultLease,
		retention:   DefaultRetention,
		timeout:     DefaultStoreTimeout,
		disposition: DefaultDisposition,
		codec:       codec.JSON{},
		maxResult:   DefaultMaxResultBytes,
	}
	return apply(c, opts)
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
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidOption}, args...)...)
}

// Options joins options into one, so that a program can keep its defaults in
// one place and pass them to every call.
func Options(opts ...Option) Option {
	return optionFunc(func(c *config) error { return apply(c, opts) })
}

// WithLease sets for how long a claim is its owner's alone without a sign of
// life. While the closure runs the lease is renewed every third of it, so it
// bounds how long a crashed owner blocks the key, not how long work may take.
// It must be positive. Default: [DefaultLease].
func WithLease(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 {
			return invalidOption("lease %v is not positive", d)
		}
		c.lease = d
		return nil
	})
}

// WithRetention sets for how long an outcome is replayed, counted from its
// completion. After it the key is new again. It must be positive.
// Default: [DefaultRetention].
func WithRetention(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 {
			return invalidOption("retention %v is not positive", d)
		}
		c.retention = d
		return nil
	})
}

// WithWait makes a caller that finds the key in progress wait for the outcome,
// at most d, before it gets [ErrInProgress]. It asks in short separate steps
// and holds no connection between them. If the key is freed meanwhile, the
// waiter claims it and runs its closure. Zero, the default, does not wait;
// negative is refused, as is waiting within a caller's own transaction.
func WithWait(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < 0 {
			return invalidOption("wait %v is negative", d)
		}
		c.wait = d
		return nil
	})
}

// StalePolicy says what becomes of a claim whose owner's lease ended without
// an outcome.
type StalePolicy int

// The policies of [WithStale].
const (
	Reclaim StalePolicy = iota // the next caller with the same payload runs its closure; see [Reclaimed]
	Refuse                     // callers get [ErrOutcomeUnknown] until [Resolve] settles the key
)

// WithStale sets the policy for stale claims. Default: [Reclaim].
func WithStale(p StalePolicy) Option {
	return optionFunc(func(c *config) error {
		if p != Reclaim && p != Refuse {
			return invalidOption("unknown stale policy %d", p)
		}
		c.stale = p
		return nil
	})
}

// WithDisposition replaces the rule that says what is kept of a run.
// Default: [DefaultDisposition].
func WithDisposition(f func(Outcome) Disposition) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil disposition")
		}
		c.disposition = f
		return nil
	})
}

// WithErrors registers errors under stable codes. Of an error that matches a
// registered one (with [errors.Is]) the code is kept, and on replay the
// [*RecordedError] matches it too. If several match, the one that matches the
// others counts, and then the first by code. Codes are valid UTF-8 of at most
// 255 characters, without control characters. Of an error that has a method
// PublicMessage() string, that message is kept too, up to 1,000 characters;
// the text of errors never is.
func WithErrors(byCode map[string]error) Option {
	return optionFunc(func(c *config) error {
		for code, err := range byCode {
			if reason := refuse(code, MaxKeyLength); reason != "" || err == nil {
				return invalidOption("an error needs a code, and a code an error: the code %s", cmp.Or(reason, "has none"))
			}
		}
		c.errors = byCode
		return nil
	})
}

// WithCodec sets the codec of the result. Default: [codec.JSON].
func WithCodec(cd codec.Codec) Option {
	return optionFunc(func(c *config) error {
		if cd == nil {
			return invalidOption("nil codec")
		}
		if reason := refuse(cd.Name(), MaxKeyLength); reason != "" {
			return invalidOption("the codec's name %s", reason)
		}
		if v := cd.Version(); v < 0 || v > math.MaxInt32 {
			return invalidOption("the codec's version %d is negative or too large", v)
		}
		c.codec = cd
		return nil
	})
}

// WithMaxResultBytes bounds the size of an encoded result. Of a larger one only
// the status is kept; see [ErrNotRecorded] and [ErrResultNotKept]. It must be
// positive. Default: [DefaultMaxResultBytes].
func WithMaxResultBytes(n int) Option {
	return optionFunc(func(c *config) error {
		if n <= 0 {
			return invalidOption("result limit %d is not positive", n)
		}
		c.maxResult = n
		return nil
	})
}

// WithHashKey makes the payload hash an HMAC under current, for payloads that
// could be guessed from a leaked hash. Records hashed under one of previous, or
// before a key was set, are still compared. Keys must not be empty.
//
// To rotate keys without a false mismatch, deploy in two steps: first
// WithHashKey(old, new) everywhere, so that all processes know the new key, then
// WithHashKey(new, old). Keep old for as long as the retention.
func WithHashKey(current []byte, previous ...[]byte) Option {
	return optionFunc(func(c *config) error {
		keys := append([][]byte{current}, previous...)
		for _, k := range keys {
			if len(k) == 0 {
				return invalidOption("empty hash key")
			}
		}
		c.hashKeys = keys
		return nil
	})
}

// WithDetached gives the closure a context that does not end with the
// caller's: a client that hangs up does not turn the run into an unknown
// outcome. It still ends when the lease is lost.
func WithDetached() Option {
	return optionFunc(func(c *config) error {
		c.detached = true
		return nil
	})
}

// WithObserver sets the function that is told what happened, such as
// [LogEvents]. It is called on the caller's goroutine or the renewal's, so it
// must be quick and safe for concurrent use.
func WithObserver(f func(context.Context, Event)) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil observer")
		}
		c.observer = f
		return nil
	})
}

// WithStoreTimeout bounds each request to the store. The requests of a call do
// not end with the caller's context, or a client that hangs up would lose the
// record. A claim as a whole keeps to the bound too; saving an outcome is
// tried again until the lease ends. It must be positive.
// Default: [DefaultStoreTimeout].
func WithStoreTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 {
			return invalidOption("store timeout %v is not positive", d)
		}
		c.timeout = d
		return nil
	})
}
