package idemhttp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/idem-go/idem"
)

// Middleware returns a middleware that runs each request with an idempotency
// key once, and answers its repetitions with the recorded answer. A key belongs
// to the user that the user function names, and to the route.
//
// GET, HEAD, OPTIONS and TRACE pass through untouched, as do requests without a
// key unless [RequireKey] is set. Errors are answered as [ProblemFor] says.
//
// It panics if an option is bad; see [Option].
func Middleware(store idem.Store, user UserFunc, opts ...Option) func(http.Handler) http.Handler {
	c := newConfig(store, user, opts)
	if c.errors != nil {
		panic(invalidOption("WithErrors is for Handler"))
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			req, p := c.accept(w, r)
			switch {
			case p != nil:
				c.answer(w, r, p)
			case req == nil:
				next.ServeHTTP(w, r)
			default:
				c.serve(w, r, req, next)
			}
		})
	}
}

// A request is one that came with a key: what was read of it.
type request struct {
	key     idem.Key
	body    []byte
	payload any
}

// accept reads what decides a request. It returns nothing for a request that
// is none of the middleware's business.
func (c *config) accept(w http.ResponseWriter, r *http.Request) (*request, *Problem) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return nil, nil
	}
	key, err := ParseKey(r, c.keyHeaders...)
	if errors.Is(err, ErrNoKey) && !c.requireKey {
		return nil, nil
	}
	user, failure := c.user(r)
	if failure != nil { // before the key's: who is not known learns nothing
		p := newProblem(http.StatusUnauthorized, CodeUnauthenticated, "Unauthenticated",
			"The request needs an authenticated user.")
		p.Err = failure
		return nil, p
	}
	if err != nil {
		return nil, ProblemFor(err)
	}
	req := &request{key: idem.Key{User: user, Scope: c.scope(r), Key: key}}
	if _, err := req.key.Normalize(); err != nil {
		return nil, ProblemFor(err)
	}
	if req.body, err = readBody(w, r, c.maxBody); err != nil {
		return nil, bodyProblem(err)
	}
	if c.fingerprint != nil {
		req.payload, err = c.fingerprint(r, req.body)
	} else {
		req.payload, err = newFingerprint(r, req.body)
	}
	if err != nil {
		return nil, bodyProblem(err)
	}
	return req, nil
}

// errFailed makes an answer of 400 and above a failure for [idem.Do], which
// undoes what was written in the run's own transaction.
var errFailed = errors.New("idemhttp: the answer is an error")

// serve runs next, or answers with what is recorded.
func (c *config) serve(w http.ResponseWriter, r *http.Request, req *request, next http.Handler) {
	before := maps.Clone(w.Header())
	rec := newRecorder(w, c.maxResponse)
	ran := false
	run := func(ctx context.Context) (Response, idem.Status, error) {
		ran = true
		inner := r.WithContext(ctx)
		withBody(inner, req.body)
		// The server removes the files of r's form, a middleware in front logs
		// r's pattern, but they are set on the copy.
		defer func() { r.Pattern, r.Form, r.PostForm, r.MultipartForm = inner.Pattern, inner.Form, inner.PostForm, inner.MultipartForm }()
		next.ServeHTTP(rec, inner)
		resp := c.persisted(r, rec.finish(c.recorded))
		if rec.status >= 400 {
			return resp, idem.Status(rec.status), errFailed
		}
		return resp, idem.Status(resp.statusFor(rec)), nil
	}
	res, err := idem.Do(r.Context(), c.store, req.key, req.payload, run, c.do...)
	if f, ok := req.payload.(*fingerprint); ok && f.JSON != nil && !ran && errors.Is(err, idem.ErrInvalidPayload) {
		f.raw(req.body) // no JSON that can be compared: the handler will say so
		res, err = idem.Do(r.Context(), c.store, req.key, req.payload, run, c.do...)
	}
	switch {
	case !ran && res.Replayed:
		c.replayed(w, r, res, err)
	case !ran:
		c.answer(w, r, ProblemFor(err))
	case rec.sent || rec.hijacked:
		if err != nil && res.CompletedAt.IsZero() && settling(err) {
			rec.notRecorded()
		}
	case errors.Is(err, idem.ErrLeaseLost), errors.Is(err, idem.ErrOutcomeUnknown):
		// The recorded answer is, or will be, another one.
		replace(w.Header(), before)
		c.answer(w, r, ProblemFor(err))
	default:
		if errors.Is(err, idem.ErrNotRecorded) && res.CompletedAt.IsZero() {
			rec.notRecorded()
		}
		rec.send(true)
	}
}
