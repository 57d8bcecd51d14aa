package idemhttp

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"

	"github.com/idem-go/idem"
)

// Defaults of the options.
const (
	DefaultMaxBodyBytes     = 1 << 20
	DefaultMaxResponseBytes = idem.DefaultMaxResultBytes
)

// An Option changes how [Middleware] and [Handler] work. A bad option makes
// them panic when the program starts, as a bad pattern does in
// [http.ServeMux.Handle]; the panic's value is an error that matches
// [idem.ErrInvalidOption].
type Option interface{ apply(*config) error }

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

// A UserFunc returns who sent the request, as authentication has found out:
// never what the request merely claims. Keys of different users never meet, so
// the name must be unique to the user (and to the tenant, if users are). It
// returns an error for a request that is not authenticated, which is answered
// with 401, and [idem.NoUser] where there are no users.
type UserFunc func(*http.Request) (string, error)

type config struct {
	store idem.Store
	user  UserFunc

	keyHeaders  []string
	requireKey  bool
	scope       func(*http.Request) string
	fingerprint func(*http.Request, []byte) (any, error)
	maxBody     int64
	maxResponse int
	recorded    map[string]bool
	do          []idem.Option
	errors      map[string]error

	authorize func(*http.Request, *Response) error
	persist   func(*http.Request, *Response) bool
	replay    func(http.ResponseWriter, *http.Request, *Response) bool
	render    func(http.ResponseWriter, *http.Request, *Problem)
	compat    bool
}

func newConfig(store idem.Store, user UserFunc, opts []Option) *config {
	c := &config{
		store: store, user: user,
		keyHeaders:  []string{DefaultKeyHeader},
		scope:       routeScope,
		maxBody:     DefaultMaxBodyBytes,
		maxResponse: DefaultMaxResponseBytes,
		recorded:    map[string]bool{},
	}
	for _, name := range DefaultHeaders() {
		c.recorded[name] = true
	}
	if err := c.set(opts); err != nil {
		panic(err)
	}
	return c
}

// headRoom is what the status and the headers of an answer may take besides
// the body.
const headRoom = 64 << 10

func (c *config) set(opts []Option) error {
	if c.store == nil || c.user == nil {
		return invalidOption("a store and a user function are needed")
	}
	for _, o := range opts {
		if o == nil {
			return invalidOption("nil option")
		}
		if err := o.apply(c); err != nil {
			return err
		}
	}
	c.do = slices.Concat([]idem.Option{
		idem.WithDetached(), idem.WithMaxResultBytes(c.maxResponse + headRoom),
	}, c.do)
	_, err := idem.PayloadHash("", c.do...) // tells whether the options are good
	return err
}

func invalidOption(format string, args ...any) error {
	return fmt.Errorf("%w: idemhttp: "+format, append([]any{idem.ErrInvalidOption}, args...)...)
}

// WithKeyHeader names the headers that may carry the key. A request must have
// at most one of them, once. Default: [DefaultKeyHeader].
func WithKeyHeader(names ...string) Option {
	return optionFunc(func(c *config) error {
		if len(names) == 0 || slices.Contains(names, "") {
			return invalidOption("a key header needs a name")
		}
		c.keyHeaders = names
		return nil
	})
}

// RequireKey answers an unsafe request without a key with 400. Default: it
// passes through to the handler, without protection.
func RequireKey() Option {
	return optionFunc(func(c *config) error {
		c.requireKey = true
		return nil
	})
}

// WithScope replaces the function that gives a request's [idem.Key.Scope].
//
// Default: the method and the route's pattern, such as "POST /payments/{id}", or
// a digest of it if it is too long. The pattern is [http.Request.Pattern], which
// is set only behind the router: a middleware in front of it sees none, and the
// scope is the method alone. Then a key that is reused for another route is a
// mismatch instead of another key.
func WithScope(f func(*http.Request) string) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil scope function")
		}
		c.scope = f
		return nil
	})
}

// WithFingerprint replaces the function that says what a request asks for: its
// result is the payload of [idem.Do], by which retries are told from another
// request under the same key. body is the whole body and must not be changed. An
// error is answered with 400.
//
// Default: method, path, query and body. A body that calls itself JSON is
// compared by meaning (key order and spaces do not matter), a multipart one by
// its parts (boundaries do not matter), any other byte by byte. JSON that cannot
// be read is compared as bytes, so that the handler can answer it; multipart
// that cannot be read is answered with 400.
func WithFingerprint(f func(r *http.Request, body []byte) (any, error)) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil fingerprint function")
		}
		c.fingerprint = f
		return nil
	})
}

// WithMaxBodyBytes bounds the body of a request with a key, which is held in
// memory; a larger one is answered with 413 before anything is claimed. It must
// be positive. Default: [DefaultMaxBodyBytes].
func WithMaxBodyBytes(n int64) Option {
	return optionFunc(func(c *config) error {
		if n <= 0 {
			return invalidOption("body limit %d is not positive", n)
		}
		c.maxBody = n
		return nil
	})
}

// WithMaxResponseBytes bounds the body of an answer that is kept, and the memory
// that one takes. A larger one streams through to the first caller; repetitions
// get the problem [CodeResultNotKept] and the handler does not run again.
// [idem.WithMaxResultBytes] can only lower it. It must be positive.
// Default: [DefaultMaxResponseBytes].
func WithMaxResponseBytes(n int) Option {
	return optionFunc(func(c *config) error {
		if n <= 0 {
			return invalidOption("response limit %d is not positive", n)
		}
		c.maxResponse = n
		return nil
	})
}

// WithResponseHeaders adds headers to those that are recorded. Cookies,
// credentials, dates and the connection's own headers are refused.
// Default: [DefaultHeaders].
func WithResponseHeaders(names ...string) Option {
	return optionFunc(func(c *config) error {
		for _, name := range names {
			name = textproto.CanonicalMIMEHeaderKey(name)
			if name == "" || neverRecorded(name) {
				return invalidOption("the header %q is never recorded", name)
			}
			c.recorded[name] = true
		}
		return nil
	})
}

// WithDo passes options on to [idem.Do]: lease, retention, waiting, stale
// claims, disposition, observer, and so on. [idem.WithDetached] is set already.
// Default: none.
func WithDo(opts ...idem.Option) Option {
	return optionFunc(func(c *config) error {
		c.do = append(c.do, opts...)
		return nil
	})
}

// WithAuthorize is asked before a recorded answer is handed out, whose user may
// have lost the right to see it meanwhile. An error is answered with 403. The
// response must not be changed; its body is nil if the answer was not kept.
// Default: what the user function lets through is replayed.
func WithAuthorize(f func(*http.Request, *Response) error) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil authorize function")
		}
		c.authorize = f
		return nil
	})
}

// WithPersist may change what is recorded of an answer, but not what the first
// caller gets: it is given a copy. If it returns false, nothing but the fact is
// recorded, and repetitions get the problem [CodeResultNotKept]. It is asked for
// answers, too, that turn out not to be kept because of their status. [Handler]
// does not take it. Default: answers are recorded as they are.
func WithPersist(f func(*http.Request, *Response) bool) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil persist function")
		}
		c.persist = f
		return nil
	})
}

// WithReplay may write a replay itself, and then returns true. The headers that
// mark a replay are set already. [Handler] does not take it. Default: the
// recorded answer is written.
func WithReplay(f func(http.ResponseWriter, *http.Request, *Response) bool) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil replay function")
		}
		c.replay = f
		return nil
	})
}

// WithRender replaces the function that answers with a problem. It may change
// the problem, then call its Write, or write something else entirely:
//
//	idemhttp.WithRender(func(w http.ResponseWriter, r *http.Request, p *idemhttp.Problem) {
//		switch p.Code {
//		case idemhttp.CodePayloadMismatch:
//			p.Status, p.Metadata = 409, map[string]any{"help": "https://example.com/keys"}
//		case idemhttp.CodeUnauthenticated:
//			w.Header().Set("WWW-Authenticate", "Bearer")
//		}
//		p.Write(w)
//	})
//
// Default: [Problem.Write].
func WithRender(f func(http.ResponseWriter, *http.Request, *Problem)) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return invalidOption("nil render function")
		}
		c.render = f
		return nil
	})
}

// WithErrors registers the errors that a [Handler]'s function returns under the
// codes that clients see, as [idem.WithErrors] does, which it passes on. It is
// for Handler only. Default: none; an error shows no more than its status.
func WithErrors(byCode map[string]error) Option {
	return optionFunc(func(c *config) error {
		if len(byCode) == 0 {
			return invalidOption("no errors are registered")
		}
		c.errors = byCode
		c.do = append(c.do, idem.WithErrors(byCode))
		return nil
	})
}

// CompatIdempotencyKit keeps clients of IdempotencyKit (Elixir) working:
// replays also carry "x-idempotency-status: replayed", and another request
// under a used key is answered with 409 instead of 422. Default: off.
func CompatIdempotencyKit() Option {
	return optionFunc(func(c *config) error {
		c.compat = true
		return nil
	})
}
