package idemgrpc

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Metadata.
const (
	// KeyMetadata is the request metadata that holds the key. With the suffix
	// -bin it holds one that is not printable ASCII.
	KeyMetadata = "idempotency-key"

	// ReplayedMetadata is the response header that is "true" on a replay.
	ReplayedMetadata = "idempotent-replayed"

	// NotRecordedMetadata is the response trailer that is "true" if the handler
	// ran but its answer could not be recorded: a retry may run it again, or be
	// told that the answer was not kept.
	NotRecordedMetadata = "idempotent-not-recorded"

	binSuffix        = "-bin"
	pushbackMetadata = "grpc-retry-pushback-ms" // gRFC A6
)

var (
	replayed    = metadata.Pairs(ReplayedMetadata, "true")
	notRecorded = metadata.Pairs(NotRecordedMetadata, "true")
)

// reflected returns the message that v is, or nil.
func reflected(v any) protoreflect.Message {
	switch m := v.(type) {
	case proto.Message:
		return m.ProtoReflect()
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m).ProtoReflect()
	}
	return nil
}

// field returns the field of the message that may hold the key, or nil.
func (m *method) field(msg protoreflect.Message) protoreflect.FieldDescriptor {
	return keyField(msg, m.keyField)
}

func keyField(msg protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	fd := msg.Descriptor().Fields().ByName(name)
	if fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
		return nil
	}
	return fd
}

// key returns the call's key as it came, and whether there is one. A field
// without presence that is empty is one that was not set.
func (m *method) key(ctx context.Context, msg protoreflect.Message, field protoreflect.FieldDescriptor) (key string, found bool, bad *refusal) {
	values := slices.Concat(
		metadata.ValueFromIncomingContext(ctx, KeyMetadata),
		metadata.ValueFromIncomingContext(ctx, KeyMetadata+binSuffix),
	)
	if len(values) > 1 {
		return "", true, badKey(KeyMetadata, "the metadata has more than one key")
	}
	if field != nil && msg.Has(field) {
		key := msg.Get(field).String()
		if len(values) > 0 && strings.Trim(key, " ") != strings.Trim(values[0], " ") {
			return "", true, badKey(string(field.Name()), "the request and its metadata have different keys")
		}
		return key, true, nil
	}
	if len(values) == 0 {
		return "", false, nil
	}
	return values[0], true, nil
}
