package idemgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idem-go/idem"
)

// Principal returns who makes the call, from what authentication has put into
// the context: the [idem.Key.User] of its key. A server without users returns
// [idem.NoUser]. An error, or the empty string, refuses the call as
// UNAUTHENTICATED; the error's text is not shown to the caller.
type Principal func(context.Context) (string, error)

// Methods lists the methods that run once per key, by full method name
// ("/package.Service/Method"), each with options of its own. All others pass
// through untouched.
type Methods map[string][]Option

// Interceptor protects the unary methods of a server. Use [New]. It is safe for
// concurrent use.
type Interceptor struct {
	store     idem.Store
	principal Principal
	methods   map[string]*method
}

// A method is one of Methods.
type method struct {
	config
	scope string
}

// New returns the interceptor of a server. opts hold for all listed methods. It
// returns [idem.ErrInvalidOption] for bad options, names that are no method's,
// and methods that stream, as far as the program's own descriptors tell; what
// only the server knows is left to [Interceptor.Check]. New starts nothing.
func New(store idem.Store, principal Principal, methods Methods, opts ...Option) (*Interceptor, error) {
	switch {
	case store == nil:
		return nil, invalidOption("nil store")
	case principal == nil:
		return nil, invalidOption("nil principal function")
	case len(methods) == 0:
		return nil, invalidOption("no methods")
	}
	i := &Interceptor{store: store, principal: principal, methods: map[string]*method{}}
	var problems []error
	for name, own := range methods {
		cfg, err := configure(opts, own)
		i.methods[name] = &method{config: cfg, scope: scope(name)}
		problems = append(problems, err, described(name))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return i, nil
}

// Unary is the [grpc.UnaryServerInterceptor]. It belongs inside those that
// recover from panics, log, measure and authenticate, and outside those that
// only matter to a run.
func (i *Interceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	m := i.methods[info.FullMethod]
	if m == nil {
		return handler(ctx, req)
	}
	msg := reflected(req)
	if msg == nil {
		return nil, m.refuse(ctx, refusal{code: codes.Internal, reason: ReasonInvalidSetup, message: "the request is not a protocol buffer"})
	}
	field := m.field(msg)
	key, found, bad := m.key(ctx, msg, field)
	if bad == nil && !found && m.optional {
		return handler(ctx, req)
	}
	user, err := i.principal(ctx)
	switch {
	case err != nil || user == "":
		return nil, m.refuse(ctx, noPrincipal)
	case bad != nil:
		return nil, m.refuse(ctx, *bad)
	case !found:
		return nil, m.refuse(ctx, missingKey(field))
	}
	c := &call{method: m, caller: ctx, req: req, handler: handler}
	res, err := idem.Do(ctx, i.store, idem.Key{User: user, Scope: m.scope, Key: key}, payload(msg, field), c.run, m.idem...)
	switch {
	case c.ran:
		return c.answer(ctx, err)
	case res.Replayed:
		return m.replay(ctx, res, err)
	}
	return nil, m.refuse(ctx, m.refusalOf(err, field))
}

// A call is one run of a handler.
type call struct {
	*method
	caller  context.Context
	req     any
	handler grpc.UnaryHandler

	ran    bool // the handler has returned this:
	resp   any
	err    error
	failed *failure
}

// run is the closure of Do. Its value is the response or the status, as it is
// recorded; what the caller gets is what the handler returned.
func (c *call) run(ctx context.Context) (*anypb.Any, idem.Status, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	resp, err := c.handler(ctx, c.req)
	c.ran, c.resp, c.err = true, resp, err
	if err == nil {
		return packed(resp), statusOf(codes.OK), nil
	}
	st := sent(err)
	c.failed = &failure{err: err}
	if code := st.Code(); (code == codes.Canceled || code == codes.DeadlineExceeded) && ctx.Err() != nil {
		c.failed.err = idem.Unknown(err) // the context's own end, in the words of gRPC
	}
	return packed(st.Proto()), statusOf(st.Code()), c.failed
}

// within gives the handler's context the end that it has to have besides the
// lease's: the caller's deadline, and if asked for the caller's going away.
func (c *call) within(ctx context.Context) (context.Context, context.CancelFunc) {
	cancel := func() {}
	if d, ok := c.caller.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, d)
	}
	if !c.callerCancels {
		return ctx, cancel
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.caller, func() { end(context.Cause(c.caller)) })
	return ctx, func() { stop(); end(nil); cancel() }
}

// A failure is a handler's error while Do decides what becomes of it. After that
// it is closed, so that what it wraps is not taken for Do's own words.
type failure struct {
	err    error
	closed bool
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error {
	if f.closed {
		return nil
	}
	return f.err
}

// answer is what a caller gets whose handler ran: what the handler returned,
// unless somebody else's run counts.
func (c *call) answer(ctx context.Context, err error) (any, error) {
	if c.failed != nil {
		c.failed.closed = true
	}
	switch {
	case err == nil, err == error(c.failed): //nolint:errorlint // with a problem joined to it, it is another error
	case errors.Is(err, idem.ErrLeaseLost):
		return nil, c.refuse(ctx, c.leaseLost())
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return nil, c.refuse(ctx, outcomeUnknown)
	default:
		_ = grpc.SetTrailer(ctx, notRecorded)
	}
	return c.resp, c.err
}

// replay is what a caller gets whose key has an outcome.
func (m *method) replay(ctx context.Context, res idem.Result[*anypb.Any], err error) (any, error) {
	_ = grpc.SetHeader(ctx, replayed)
	var recorded *idem.RecordedError
	failed := errors.As(err, &recorded)
	switch {
	case failed && res.Value != nil:
		if st := statusIn(res.Value); st.Code() != codes.OK { // nil is OK
			return nil, st.Err()
		}
		return nil, m.refuse(ctx, unreadable)
	case failed:
		return nil, m.refuse(ctx, failedNotKept(recorded))
	case res.Value == nil:
		return nil, m.refuse(ctx, notKept)
	}
	resp, err := res.Value.UnmarshalNew()
	if err != nil {
		return nil, m.refuse(ctx, unreadable)
	}
	return resp, nil
}

// Stream is a [grpc.StreamServerInterceptor] that refuses listed methods: a
// stream can not be replayed, and to let it through would be to promise what is
// not kept. [Interceptor.Check] finds them before anybody calls.
func (i *Interceptor) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if i.methods[info.FullMethod] != nil {
		return status.Errorf(codes.Unimplemented, "idemgrpc: %s streams: only unary methods can be run once per key", info.FullMethod)
	}
	return handler(srv, ss)
}
