package idemgrpc

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idem-go/idem"
)

// Domain is the domain of the ErrorInfo that every refusal carries.
const Domain = "github.com/idem-go/idem"

// Reasons of refusals.
const (
	ReasonInFlight       = "IDEMPOTENCY_KEY_IN_FLIGHT"
	ReasonReused         = "IDEMPOTENCY_KEY_REUSED"
	ReasonMissing        = "IDEMPOTENCY_KEY_MISSING"
	ReasonInvalid        = "IDEMPOTENCY_KEY_INVALID"
	ReasonNoPrincipal    = "IDEMPOTENCY_NO_PRINCIPAL"
	ReasonUnavailable    = "IDEMPOTENCY_UNAVAILABLE"
	ReasonOutcomeUnknown = "IDEMPOTENCY_OUTCOME_UNKNOWN"
	ReasonLeaseLost      = "IDEMPOTENCY_LEASE_LOST"
	ReasonUnreadable     = "IDEMPOTENCY_RECORD_UNREADABLE"
	ReasonNotKept        = "IDEMPOTENCY_RESULT_NOT_KEPT"
	ReasonInvalidSetup   = "IDEMPOTENCY_INVALID_SETUP"
)

// ReasonOf returns the reason why a call was refused by this package's server
// interceptor, or the empty string for any other error, a handler's own included.
func ReasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info.GetReason()
		}
	}
	return ""
}

// A refusal is an answer that is not the handler's.
type refusal struct {
	code    codes.Code
	reason  string
	message string
	field   string        // of the request, if that is what is wrong
	retry   time.Duration // when to try again; never if negative, unsaid if zero
	pushed  bool          // and whether the client's retry policy is told
}

const never time.Duration = -1

var (
	noPrincipal = refusal{
		code: codes.Unauthenticated, reason: ReasonNoPrincipal,
		message: "the caller is not known",
	}
	reused = refusal{
		code: codes.FailedPrecondition, reason: ReasonReused, retry: never, pushed: true,
		message: "the idempotency key was used with another request",
	}
	outcomeUnknown = refusal{
		code: codes.Aborted, reason: ReasonOutcomeUnknown, retry: never, pushed: true,
		message: "whether an earlier call with this idempotency key took effect is not known",
	}
	unreadable = refusal{
		code: codes.Internal, reason: ReasonUnreadable, retry: never, pushed: true,
		message: "the record of this idempotency key cannot be read",
	}
	notKept = refusal{
		code: codes.DataLoss, reason: ReasonNotKept, retry: never, pushed: true,
		message: "the call took effect, but its response was not kept",
	}
)

// failedNotKept is the replay of a failure of which only the status is known.
func failedNotKept(e *idem.RecordedError) refusal {
	r := refusal{code: codeOf(e.Status), reason: ReasonNotKept, retry: never, pushed: true, message: e.Message}
	if r.message == "" {
		r.message = "the call failed, but its status was not kept in full"
	}
	if r.code == codes.OK {
		r.code = codes.Unknown
	}
	return r
}

func badKey(field, problem string) *refusal {
	return &refusal{code: codes.InvalidArgument, reason: ReasonInvalid, field: field, message: problem}
}

func missingKey(field protoreflect.FieldDescriptor) refusal {
	return refusal{
		code: codes.InvalidArgument, reason: ReasonMissing, field: placeOf(field),
		message: "an idempotency key is required",
	}
}

// placeOf is where a request's key belongs.
func placeOf(field protoreflect.FieldDescriptor) string {
	if field == nil {
		return KeyMetadata
	}
	return string(field.Name())
}

func (m *method) inFlightFor(left time.Duration) refusal {
	return refusal{
		code: m.inFlight, reason: ReasonInFlight, retry: min(left, m.retryAfter), pushed: true,
		message: "a call with this idempotency key is in flight",
	}
}

func (m *method) leaseLost() refusal {
	return refusal{
		code: codes.Aborted, reason: ReasonLeaseLost, retry: m.retryAfter, pushed: true,
		message: "another call with this idempotency key has taken over",
	}
}

func (m *method) unavailable() refusal {
	return refusal{
		code: codes.Unavailable, reason: ReasonUnavailable, retry: m.retryAfter,
		message: "idempotency keys cannot be checked at the moment",
	}
}

// refusalOf says what a caller is told whose handler did not run.
func (m *method) refusalOf(err error, field protoreflect.FieldDescriptor) refusal {
	var (
		inProgress *idem.InProgressError
		bad        *idem.KeyError
	)
	switch {
	case errors.As(err, &inProgress): // waiting may have ended with the context, too
		return m.inFlightFor(inProgress.RetryAfter)
	case errors.As(err, &bad) && bad.Part == "key":
		return *badKey(placeOf(field), "the idempotency key "+bad.Reason)
	case errors.As(err, &bad): // authentication has brought up somebody who cannot be
		return noPrincipal
	case errors.Is(err, idem.ErrPayloadMismatch):
		return reused
	case errors.Is(err, idem.ErrUnavailable):
		return m.unavailable()
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return outcomeUnknown
	case errors.Is(err, idem.ErrCorruptRecord):
		return unreadable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return refusal{code: status.FromContextError(err).Code(), message: "the caller did not wait for the call to begin"}
	}
	return refusal{code: codes.Internal, reason: ReasonInvalidSetup, message: "the server's use of idemgrpc is invalid"}
}

// refuse turns a refusal into the error to return, and tells the client's retry
// policy, which does not read RetryInfo, when to try again. Headers stay unset:
// grpc-go retries only what has none.
func (m *method) refuse(ctx context.Context, r refusal) error {
	if r.pushed {
		ms := int64(-1)
		if r.retry > 0 {
			ms = max(1, r.retry.Milliseconds())
		}
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushbackMetadata, strconv.FormatInt(ms, 10)))
	}
	var details []protoadapt.MessageV1
	if r.reason != "" {
		details = append(details, protoadapt.MessageV1Of(&errdetails.ErrorInfo{Domain: Domain, Reason: r.reason}))
	}
	if r.retry > 0 {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(r.retry)}))
	}
	if r.field != "" {
		details = append(details, protoadapt.MessageV1Of(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: r.field, Description: r.message},
		}}))
	}
	st, err := status.New(r.code, r.message).WithDetails(details...)
	if err != nil {
		return status.Error(r.code, r.message)
	}
	return st.Err()
}
