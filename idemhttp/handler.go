package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/idem-go/idem"
)

// Request is what the function of a [Handler] gets.
type Request[In any] struct {
	*http.Request // its context is that of a closure of idem.Do; its body has been read
	Input         In
}

// Handler returns a handler that decodes a JSON body, calls fn once per
// idempotency key, and encodes what it returned as JSON:
//
//	mux.Handle("POST /payments", idemhttp.Handler(store, userOf,
//		func(r *idemhttp.Request[CreatePayment]) (Payment, idem.Status, error) {
//			p, err := charge(r.Context(), r.Input, idem.ExecutionID(r.Context()))
//			if errors.Is(err, ErrDeclined) {
//				return Payment{}, 402, err
//			}
//			return p, 201, err
//		}, idemhttp.WithErrors(map[string]error{"card_declined": ErrDeclined})))
//
// Requests and keys are treated as by [Middleware], but the record holds the
// value, not the answer. A body that does not decode is answered with 400 before
// anything is claimed. An Out with a method HTTPHeader() http.Header adds those
// headers, such as Location; it must derive them from its encoded fields.
//
// fn's results mean what they mean to [idem.Do]. An error is answered with a
// problem of its status, or 500 if it has none, with the code of [WithErrors]
// and the message that the error offers by PublicMessage() string. Nothing else
// of an error is shown.
func Handler[In, Out any](store idem.Store, user UserFunc,
	fn func(*Request[In]) (Out, idem.Status, error), opts ...Option,
) http.Handler {
	c := newConfig(store, user, opts)
	if fn == nil || c.persist != nil || c.replay != nil {
		panic(invalidOption("Handler needs a function, and takes neither WithPersist nor WithReplay"))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, p := c.accept(w, r)
		if p == nil && req == nil {
			req = &request{}
			if body, err := readBody(w, r, c.maxBody); err != nil {
				p = bodyProblem(err)
			} else {
				req.body = body
			}
		}
		in := &Request[In]{Request: r}
		if p == nil {
			p = decodeInput(req.body, &in.Input)
		}
		switch {
		case p != nil:
			c.answer(w, r, p)
		case req.key == idem.Key{}: // no key, no protection
			out, status, err := fn(in)
			c.respond(w, r, out, status, err)
		default:
			serveTyped(c, w, in, req, fn)
		}
	})
}

func decodeInput(body []byte, in any) *Problem {
	if len(body) == 0 {
		return nil // for handlers that take none
	}
	err := json.Unmarshal(body, in)
	if err == nil {
		return nil
	}
	p := newProblem(http.StatusBadRequest, CodeInvalidRequest, "Invalid request", "The body is not the JSON that is expected.")
	p.Err = err
	return p
}

// serveTyped calls fn through Do, or answers with what is recorded.
func serveTyped[In, Out any](c *config, w http.ResponseWriter, in *Request[In], req *request,
	fn func(*Request[In]) (Out, idem.Status, error),
) {
	r, ran := in.Request, false
	var failure error
	res, err := idem.Do(r.Context(), c.store, req.key, req.payload, func(ctx context.Context) (out Out, status idem.Status, _ error) {
		ran = true
		in.Request = r.WithContext(ctx)
		out, status, failure = fn(in)
		return out, status, failure
	}, c.do...)
	switch {
	case ran:
		if lost := gone(err); lost != nil && !errors.Is(failure, lost) {
			c.answer(w, r, ProblemFor(lost)) // the recorded answer is, or will be, another one
			return
		}
		if unrecorded(err, res.CompletedAt) {
			w.Header().Set(RecordedHeader, "false")
		}
		c.respond(w, r, res.Value, res.Status, failure)
	case res.Replayed:
		c.replayTyped(w, r, res.Value, res.Status, err)
	default:
		c.answer(w, r, ProblemFor(err))
	}
}

// gone returns the error after which the caller's own answer does not count.
func gone(err error) error {
	for _, lost := range [...]error{idem.ErrLeaseLost, idem.ErrOutcomeUnknown} {
		if errors.Is(err, lost) {
			return lost
		}
	}
	return nil
}

func (c *config) replayTyped(w http.ResponseWriter, r *http.Request, out any, status idem.Status, err error) {
	if !c.mayReplay(w, r, &Response{Status: int(status)}) {
		return
	}
	failure := (*idem.RecordedError)(nil)
	switch {
	case errors.As(err, &failure) && failure.Code != CodeExecutionFailed:
		c.respond(w, r, nil, status, failure)
	case err != nil:
		c.answer(w, r, notKept(err, status))
	default:
		c.respond(w, r, out, status, nil)
	}
}

// respond answers with what fn returned.
func (c *config) respond(w http.ResponseWriter, r *http.Request, out any, status idem.Status, failure error) {
	if failure != nil {
		c.answer(w, r, c.failed(status, failure))
		return
	}
	body, err := json.Marshal(out)
	if err != nil {
		p := newProblem(http.StatusInternalServerError, CodeInternalError, "Internal error", "The answer cannot be shown.")
		p.Err = err
		c.answer(w, r, p)
		return
	}
	if status == 0 {
		status = http.StatusOK
	}
	if h, ok := out.(interface{ HTTPHeader() http.Header }); ok {
		maps.Copy(w.Header(), h.HTTPHeader())
	}
	if bodyAllowed(int(status)) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(int(status))
	if bodyAllowed(int(status)) {
		_, _ = w.Write(body) // a client that is gone may ask again
	}
}

// failed returns the problem of fn's error, which is the same when it is replayed.
func (c *config) failed(status idem.Status, err error) *Problem {
	if errors.Is(err, idem.ErrOutcomeUnknown) {
		return ProblemFor(err)
	}
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	p := &Problem{Type: "about:blank", Title: http.StatusText(int(status)), Status: int(status), Err: err}
	recorded := (*idem.RecordedError)(nil)
	var public interface{ PublicMessage() string }
	if errors.As(err, &recorded) {
		p.Code, p.Detail = recorded.Code, recorded.Message
	} else {
		p.Code = c.codeOf(err)
		if errors.As(err, &public) {
			p.Detail = public.PublicMessage()
		}
	}
	if p.Code == "" {
		p.Code = CodeRequestFailed
	}
	return p
}

// codeOf returns the code that [idem.Do] records for an error: see [idem.WithErrors].
func (c *config) codeOf(err error) string {
	matches := slices.DeleteFunc(slices.Sorted(maps.Keys(c.errors)), func(code string) bool {
		return !errors.Is(err, c.errors[code])
	})
	for _, code := range matches {
		if !slices.ContainsFunc(matches, func(other string) bool {
			return errors.Is(c.errors[other], c.errors[code]) && !errors.Is(c.errors[code], c.errors[other])
		}) {
			return code
		}
	}
	return ""
}
