package idemgrpc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem"
)

// statuses gives each code the [idem.Status] by which the rule of
// [idem.DefaultDisposition] treats it. The final ones are those of codes that
// the same request gets again; each has its own, so that the code is known
// where only the status was kept. PERMISSION_DENIED and UNAUTHENTICATED are
// passing as 403 and 401 are: a grant or a fresh token mends them. All the
// others are passing, too.
var statuses = [...]idem.Status{
	codes.OK:                 200,
	codes.Canceled:           408,
	codes.Unknown:            500,
	codes.InvalidArgument:    400,
	codes.DeadlineExceeded:   504,
	codes.NotFound:           404,
	codes.AlreadyExists:      409,
	codes.PermissionDenied:   403,
	codes.ResourceExhausted:  429,
	codes.FailedPrecondition: 412,
	codes.Aborted:            425,
	codes.OutOfRange:         416,
	codes.Unimplemented:      501,
	codes.Internal:           500,
	codes.Unavailable:        503,
	codes.DataLoss:           500,
	codes.Unauthenticated:    401,
}

func statusOf(c codes.Code) idem.Status {
	if int(c) < len(statuses) {
		return statuses[c]
	}
	return 500 // not a code of gRPC's
}

// codeOf is the reverse of statusOf, for outcomes of which only the status was
// kept, or which [idem.Resolve] has settled.
func codeOf(s idem.Status) codes.Code {
	for c, of := range statuses {
		if of == s && codes.Code(c) != codes.Unknown {
			return codes.Code(c)
		}
	}
	return codes.Unknown
}

// sent returns the status that gRPC sends for a handler's error.
func sent(err error) *status.Status {
	st, ok := status.FromError(err)
	switch {
	case !ok:
		return status.FromContextError(err)
	case st.Code() == codes.OK:
		return status.New(codes.Unknown, err.Error())
	}
	return st
}
