package idemgrpc

import (
	"context"
	"crypto/rand"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/idem-go/idem"
)

// NewKey returns a random key: a UUID of version 4, as AIP-155 asks for.
func NewKey() string {
	var id idem.ID
	rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// WithKey returns a context whose calls have the key, in place of one that it
// has already. It is for callers that retry by hand, which must use one key for
// all attempts, and for handlers that call on: they pass [idem.ExecutionID].
func WithKey(ctx context.Context, key string) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy()
	delete(md, KeyMetadata+binSuffix)
	md.Set(KeyMetadata, key)
	return metadata.NewOutgoingContext(ctx, md)
}

// A ClientOption changes what [UnaryClientInterceptor] does.
type ClientOption func(*clientConfig)

type clientConfig struct {
	inRequest bool
	only      []string
}

// InRequest puts the key into the string field request_id of a copy of the
// request, if it has one, as servers that follow AIP-155 want it. Default: the
// metadata, which a server of this package reads as well.
func InRequest() ClientOption { return func(c *clientConfig) { c.inRequest = true } }

// ForMethods sets keys only on the methods with these full names.
// Default: on all unary methods.
func ForMethods(fullMethods ...string) ClientOption {
	return func(c *clientConfig) { c.only = append(c.only[:len(c.only):len(c.only)], fullMethods...) }
}

// UnaryClientInterceptor gives each call a key of its own, unless it has one in
// its metadata or its field request_id. All attempts that gRPC makes for the
// call under a retry or hedging policy have that key. An interceptor that
// retries must come after this one, inside it.
func UnaryClientInterceptor(opts ...ClientOption) grpc.UnaryClientInterceptor {
	var cfg clientConfig
	for _, o := range opts {
		o(&cfg)
	}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if cfg.only == nil || slices.Contains(cfg.only, method) {
			ctx, req = cfg.withKey(ctx, req)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

func (c *clientConfig) withKey(ctx context.Context, req any) (context.Context, any) {
	md, _ := metadata.FromOutgoingContext(ctx)
	if len(md.Get(KeyMetadata)) > 0 || len(md.Get(KeyMetadata+binSuffix)) > 0 {
		return ctx, req
	}
	msg := reflected(req)
	if msg == nil {
		return WithKey(ctx, NewKey()), req
	}
	field := keyField(msg, DefaultKeyField)
	switch {
	case field == nil:
	case msg.Has(field): // an empty one, too: the server has to refuse it
		return ctx, req
	case c.inRequest:
		m := proto.Clone(msg.Interface()).ProtoReflect()
		m.Set(field, protoreflect.ValueOfString(NewKey()))
		return ctx, m.Interface()
	}
	return WithKey(ctx, NewKey()), req
}
