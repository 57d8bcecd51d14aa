package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/metadata"

	"github.com/idem-go/idem/examples/grpc/shop"
	"github.com/idem-go/idem/idemgrpc"
)

// keyMatcher lets the header Idempotency-Key through grpc-gateway, which drops
// it otherwise.
func keyMatcher(header string) (string, bool) {
	if http.CanonicalHeaderKey(header) == "Idempotency-Key" {
		return idemgrpc.KeyMetadata, true
	}
	return runtime.DefaultHeaderMatcher(header)
}

// replayMatcher gives the headers of idemgrpc the names that they have over HTTP.
func replayMatcher(name string) (string, bool) {
	switch name {
	case idemgrpc.ReplayedMetadata, idemgrpc.NotRecordedMetadata:
		return http.CanonicalHeaderKey(name), true
	}
	return runtime.MetadataHeaderPrefix + name, true
}

func TestGatewayPassesTheKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mux    *runtime.ServeMux
		header []string
		want   []string
	}{
		"by default it does not": {runtime.NewServeMux(), []string{"k"}, nil},
		"with the matcher":       {newMux(), []string{"k"}, []string{"k"}},
		"empty":                  {newMux(), []string{""}, []string{""}},
		"doubled":                {newMux(), []string{"k", "l"}, []string{"k", "l"}},
	} {
		req := httptest.NewRequest(http.MethodPost, "/v1/pay", nil)
		req.Header["Idempotency-Key"] = tc.header
		ctx, err := runtime.AnnotateContext(t.Context(), tc.mux, req, shop.Shop_Pay_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		md, _ := metadata.FromOutgoingContext(ctx)
		if diff := cmp.Diff(tc.want, md.Get(idemgrpc.KeyMetadata)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func newMux() *runtime.ServeMux {
	return runtime.NewServeMux(
		runtime.WithIncomingHeaderMatcher(keyMatcher),
		runtime.WithOutgoingHeaderMatcher(replayMatcher),
	)
}
