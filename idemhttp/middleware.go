package idemhttp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

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
	c := newConfig(store, user, append([]Option{WithDo(idem.WithCodec(Codec{}))}, opts...))
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
	rec, ran := newRecorder(w, c.maxResponse), false
	run := func(ctx context.Context) (Response, idem.Status, error) {
		ran = true
		inner := r.WithContext(ctx)
		withBody(inner, req.body)
		// What is set on the copy is of use to others: a middleware in front
		// logs the pattern, the server removes the form's files.
		defer func() { r.Pattern, r.MultipartForm = inner.Pattern, inner.MultipartForm }()
		next.ServeHTTP(rec, inner)
		resp := rec.finish(c.recorded)
		status := idem.Status(resp.Status)
		c.persisted(r, &resp)
		if status >= 400 {
			return resp, status, errFailed
		}
		return resp, status, nil
	}
	res, err := idem.Do(r.Context(), c.store, req.key, req.payload, run, c.do...)
	if f, ok := req.payload.(*fingerprint); ok && f.JSON != nil && !ran && errors.Is(err, idem.ErrInvalidPayload) {
		f.raw(req.body) // it is no JSON that can be compared: let the handler say so
		res, err = idem.Do(r.Context(), c.store, req.key, f, run, c.do...)
	}
	switch {
	case ran:
		c.conclude(w, r, rec, before, res, err)
	case res.Replayed:
		c.replayed(w, r, res, err)
	default:
		c.answer(w, r, ProblemFor(err))
	}
}

// conclude sends what the handler wrote, unless a rival's answer counts now.
func (c *config) conclude(w http.ResponseWriter, r *http.Request, rec *recorder, before http.Header,
	res idem.Result[Response], err error,
) {
	superseded := errors.Is(err, idem.ErrLeaseLost) || errors.Is(err, idem.ErrOutcomeUnknown)
	if superseded && !rec.sent && !rec.hijacked {
		replace(w.Header(), before)
		c.answer(w, r, ProblemFor(err))
		return
	}
	if superseded || unrecorded(err, res.CompletedAt) {
		rec.notRecorded()
	}
	rec.send(true)
}

// unrecorded reports whether a run's outcome, and not only its value, is missing
// from the record.
func unrecorded(err error, completed time.Time) bool {
	return errors.Is(err, idem.ErrNotRecorded) && completed.IsZero()
}

// persisted asks the hook what to record.
func (c *config) persisted(r *http.Request, resp *Response) {
	if c.persist == nil || resp.notKept {
		return
	}
	resp.Body, resp.encoded = slices.Clone(resp.Body), nil
	resp.notKept = !c.persist(r, resp)
}

// replayed answers with what is recorded.
func (c *config) replayed(w http.ResponseWriter, r *http.Request, res idem.Result[Response], err error) {
	resp, gone := res.Value, errors.Is(err, idem.ErrResultNotKept)
	if gone {
		resp = Response{Status: int(res.Status)}
	}
	switch {
	case !c.mayReplay(w, r, &resp):
	case gone:
		c.answer(w, r, notKept(err, res.Status))
	case c.replay == nil || !c.replay(w, r, &resp):
		resp.write(w, r)
	}
}

// mayReplay marks the answer as a replay, or answers that it is not allowed.
func (c *config) mayReplay(w http.ResponseWriter, r *http.Request, resp *Response) bool {
	if c.authorize != nil {
		if err := c.authorize(r, resp); err != nil {
			p := newProblem(http.StatusForbidden, CodeForbidden, "Forbidden", "The recorded answer may not be shown.")
			p.Err = err
			c.answer(w, r, p)
			return false
		}
	}
	w.Header().Set(ReplayedHeader, "true")
	if c.compat {
		w.Header().Set(compatHeader, "replayed")
	}
	return true
}

// notKept is the problem of a replay without its answer.
func notKept(err error, status idem.Status) *Problem {
	p := ProblemFor(err)
	if p.Code == CodeResultNotKept && status != 0 {
		p.Metadata = map[string]any{"recorded_status": status}
	}
	return p
}

// answer answers with a problem.
func (c *config) answer(w http.ResponseWriter, r *http.Request, p *Problem) {
	if c.compat && p.Code == CodePayloadMismatch {
		p.Status = http.StatusConflict
	}
	if c.render != nil {
		c.render(w, r, p)
		return
	}
	p.Write(w)
}
