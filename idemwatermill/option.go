package idemwatermill

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
)

// DefaultWait is how long a message waits for another delivery of it that is
// being handled, unless [WithWait] says otherwise.
const DefaultWait = 10 * time.Second

// An Option changes how [Middleware] works.
type Option func(*config) error

type config struct {
	key     func(*message.Message) (idem.Key, error)
	payload func(*message.Message) any
	wait    time.Duration
	idem    []idem.Option
}

func configure(store idem.Store, opts []Option) (*config, error) {
	c := &config{
		key:     byUUID,
		payload: func(m *message.Message) any { return []byte(m.Payload) },
		wait:    DefaultWait,
	}
	if store == nil {
		return nil, invalidOption("nil store")
	}
	for _, o := range opts {
		if o == nil {
			return nil, invalidOption("nil option")
		}
		if err := o(c); err != nil {
			return nil, err
		}
	}
	c.idem = append(c.idem, idem.WithWait(c.wait))
	return c, nil
}

func invalidOption(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{idem.ErrInvalidOption}, args...)...)
}

func byUUID(m *message.Message) (idem.Key, error) {
	if m.UUID == "" {
		return idem.Key{}, idemmq.ErrNoID
	}
	return idem.Key{User: idem.NoUser, Key: m.UUID}, nil
}

// keyOf returns the key of a message. Its scope is the handler's name.
func (c *config) keyOf(m *message.Message) (idem.Key, error) {
	key, err := c.key(m)
	key.Scope = message.HandlerNameFromCtx(m.Context())
	return key, err
}

// WithKey sets the function that makes the key of a message, for example of an
// order number in its payload. The key's User must be set, to [idem.NoUser] where
// there are no users or tenants; its Scope is ignored. A message whose key is an
// error is a [*PoisonError]. Default: NoUser and the message's UUID.
func WithKey(f func(*message.Message) (idem.Key, error)) Option {
	return func(c *config) error {
		if f == nil {
			return invalidOption("nil key function")
		}
		c.key = f
		return nil
	}
}

// WithPayload sets the function that returns what is compared with earlier
// messages of the same key, as the payload of [idem.Do]. Default: the bytes of
// the message's payload; metadata is not compared.
func WithPayload(f func(*message.Message) any) Option {
	return func(c *config) error {
		if f == nil {
			return invalidOption("nil payload function")
		}
		c.payload = f
		return nil
	}
}

// WithWait sets how long a message waits for the outcome of another delivery of
// it that is being handled, before it is nacked: many subscribers deliver a
// nacked message again at once. It should be shorter than the subscriber's
// acknowledgement deadline. Zero nacks at once; negative is refused.
// Default: [DefaultWait].
func WithWait(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 {
			return invalidOption("wait %v is negative", d)
		}
		c.wait = d
		return nil
	}
}

// WithIdem sets options of [idem.Do], such as [idem.WithLease] and
// [idem.WithObserver]. For [idem.WithWait] use [WithWait].
func WithIdem(opts ...idem.Option) Option {
	return func(c *config) error {
		c.idem = append(c.idem, opts...)
		return nil
	}
}
