package idemgrpc

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/idem-go/idem"
)

// Defaults of the options.
const (
	DefaultKeyField   = "request_id"
	DefaultRetryAfter = time.Second
)

// An Option changes how the calls of a method are treated, or of all listed
// methods if it is given to [New]. A bad option makes New return
// [idem.ErrInvalidOption]. Of two options for the same setting the later one
// wins, and a method's own wins over New's; those of [WithIdem] add up.
type Option interface{ apply(*config) error }

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

type config struct {
	optional      bool
	keyField      protoreflect.Name
	inFlight      codes.Code
	retryAfter    time.Duration
	callerCancels bool
	idem          []idem.Option
}

// configure returns the defaults and what the lists of options change of them.
func configure(lists ...[]Option) (config, error) {
	c := config{
		keyField:   DefaultKeyField,
		inFlight:   codes.Aborted,
		retryAfter: DefaultRetryAfter,
		idem:       []idem.Option{idem.WithCodec(Codec{})},
	}
	for _, opts := range lists {
		if err := apply(&c, opts); err != nil {
			return c, err
		}
	}
	c.idem = append(c.idem, idem.WithDetached()) // the deadline is put back, see within
	_, err := idem.PayloadHash([]byte(nil), c.idem...)
	return c, err
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

// Options joins options into one, so that a program can keep those that several
// methods share in one place.
func Options(opts ...Option) Option {
	return optionFunc(func(c *config) error { return apply(c, opts) })
}

// OptionalKey lets calls without a key through to the handler, as if the method
// were not listed. A key that is there but empty, doubled or otherwise bad is still refused.
// Default: a call without a key is refused.
func OptionalKey() Option {
	return optionFunc(func(c *config) error {
		c.optional = true
		return nil
	})
}

// WithKeyField sets the name of the field of the request that holds the key. A
// message without a string field of that name, or with a repeated one, has its
// key in the metadata only. So has every message if name is empty: for methods
// whose request_id means something else. Default: [DefaultKeyField].
//
// The key is not part of what is compared between requests; a request_id that
// is not the key is.
func WithKeyField(name string) Option {
	return optionFunc(func(c *config) error {
		if name != "" && !protoreflect.Name(name).IsValid() {
			return invalidOption("the key field's name is not one that a field can have")
		}
		c.keyField = protoreflect.Name(name)
		return nil
	})
}

// WithInFlightCode sets the code of a call whose key is in flight:
// [codes.Aborted], the default, or [codes.Unavailable] for clients whose retry
// policy lists nothing else. Any other is refused.
func WithInFlightCode(code codes.Code) Option {
	return optionFunc(func(c *config) error {
		if code != codes.Aborted && code != codes.Unavailable {
			return invalidOption("in-flight code %v is neither ABORTED nor UNAVAILABLE", code)
		}
		c.inFlight = code
		return nil
	})
}

// WithRetryAfter sets how long a caller is told to wait, in RetryInfo and in the
// trailer grpc-retry-pushback-ms, before it tries a key in flight again, or a
// store that is down. In flight it is told less if the owner's lease ends
// sooner, but not more: most owners finish long before their lease does. It
// must be a millisecond or more. Default: [DefaultRetryAfter].
func WithRetryAfter(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < time.Millisecond {
			return invalidOption("retry delay %v is less than a millisecond", d)
		}
		c.retryAfter = d
		return nil
	})
}

// CallerCancels makes the handler's context end when the caller hangs up. By
// default it does not: a connection that breaks, a caller that gives up or a
// hedged attempt that is no longer wanted would leave a run whose outcome nobody
// knows, and whose key is held until its lease ends. The caller's deadline ends
// the handler's context in any case.
func CallerCancels() Option {
	return optionFunc(func(c *config) error {
		c.callerCancels = true
		return nil
	})
}

// WithIdem sets options of [idem.Do], such as [idem.WithRetention],
// [idem.WithWait] and [idem.WithObserver].
//
//   - The [idem.Outcome] that a disposition is asked about has the handler's
//     error, so that [google.golang.org/grpc/status.Code] tells its code.
//   - A codec must be able to encode an *anypb.Any: [Codec], one that wraps it
//     such as [github.com/idem-go/idem/codec.Sealed], or JSON.
//   - [idem.WithDetached] has no effect: see [CallerCancels].
func WithIdem(opts ...idem.Option) Option {
	return optionFunc(func(c *config) error {
		c.idem = append(c.idem[:len(c.idem):len(c.idem)], opts...)
		return nil
	})
}
