package idemgrpc_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
	"github.com/idem-go/idem/memstore"
)

// old is a service that the program has no descriptor of.
var old = grpc.ServiceDesc{
	ServiceName: "old.Service", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Call"}},
	Streams: []grpc.StreamDesc{{StreamName: "Upload", ClientStreams: true}},
}

func TestSetUpIsChecked(t *testing.T) {
	t.Parallel()
	server := grpc.NewServer()
	testpb.RegisterPaymentsServer(server, &service{})
	server.RegisterService(&old, struct{}{})
	for name, tc := range map[string]struct {
		method string
		want   string // in the error of New or Check; "" for none
	}{
		"unary":                     {testpb.Payments_Charge_FullMethodName, ""},
		"unary without descriptor":  {"/old.Service/Call", ""},
		"stream":                    {testpb.Payments_Watch_FullMethodName, "streams"},
		"stream without descriptor": {"/old.Service/Upload", "streams"},
		"unknown method":            {"/idem.test.v1.Payments/Chrage", "no such method"},
		"unknown method there":      {"/old.Service/Cal", "no such method"},
		"unknown service":           {"/idem.test.v2.Payments/Charge", "no service"},
		"a message":                 {"/idem.test.v1.Receipt/Charge", "not a service"},
		"no slash":                  {"idem.test.v1.Payments/Charge", "not of the form"},
		"only a service":            {"/idem.test.v1.Payments", "not of the form"},
		"too many parts":            {"/idem.test.v1.Payments/Charge/x", "not of the form"},
		"nothing":                   {"", "not of the form"},
	} {
		once, err := idemgrpc.New(memstore.New(), userFrom, idemgrpc.Methods{tc.method: nil})
		if err == nil {
			err = once.Check(server)
		}
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (!errors.Is(err, idem.ErrInvalidOption) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want an ErrInvalidOption that says %q", name, err, tc.want)
		}
	}
}

func TestBadOptionsAreErrors(t *testing.T) {
	t.Parallel()
	methods := func(opts ...idemgrpc.Option) idemgrpc.Methods {
		return idemgrpc.Methods{testpb.Payments_Charge_FullMethodName: opts}
	}
	build := func(store idem.Store, p idemgrpc.Principal, m idemgrpc.Methods, opts ...idemgrpc.Option) error {
		_, err := idemgrpc.New(store, p, m, opts...)
		return err
	}
	for name, err := range map[string]error{
		"nil store":         build(nil, userFrom, methods()),
		"nil principal":     build(memstore.New(), nil, methods()),
		"no methods":        build(memstore.New(), userFrom, nil),
		"nil option":        build(memstore.New(), userFrom, methods(), nil),
		"nil method option": build(memstore.New(), userFrom, methods(nil)),
		"bad key field":     build(memstore.New(), userFrom, methods(), idemgrpc.WithKeyField("a.b")),
		"in-flight code":    build(memstore.New(), userFrom, methods(), idemgrpc.WithInFlightCode(codes.OK)),
		"no retry delay":    build(memstore.New(), userFrom, methods(), idemgrpc.WithRetryAfter(0)),
		"negative delay":    build(memstore.New(), userFrom, methods(idemgrpc.Options(idemgrpc.WithRetryAfter(-time.Second)))),
		"bad idem option":   build(memstore.New(), userFrom, methods(), idemgrpc.WithIdem(idem.WithLease(0))),
		"nil idem option":   build(memstore.New(), userFrom, methods(idemgrpc.WithIdem(nil))),
	} {
		if !errors.Is(err, idem.ErrInvalidOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A stream that got past the set-up is refused, not let through unprotected.
func TestStreamsAreRefused(t *testing.T) {
	t.Parallel()
	once, err := idemgrpc.New(memstore.New(), userFrom, idemgrpc.Methods{"/old.Service/Upload": nil})
	if err != nil {
		t.Fatal(err)
	}
	called := false
	handler := func(any, grpc.ServerStream) error { called = true; return nil }
	err = once.Stream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/old.Service/Upload"}, handler)
	wantCode(t, err, codes.Unimplemented, "")
	if called {
		t.Error("the listed stream was handled")
	}
	if err := once.Stream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/old.Service/Other"}, handler); err != nil || !called {
		t.Errorf("another stream: %v", err)
	}
}

func TestLongMethodNamesAreScopes(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("package.", 20) + "Service/"
	once, err := idemgrpc.New(memstore.New(), userFrom, idemgrpc.Methods{long + "A": nil, long + "B": nil})
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for _, method := range []string{long + "A", long + "A", long + "B"} {
		if err := unary(t, once, method, cancelRequest("k"), func() { runs++ }); err != nil {
			t.Fatal(err)
		}
	}
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
}
