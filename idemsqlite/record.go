package idemsqlite

import (
	"database/sql"
	"math"
	"time"

	"github.com/idem-go/idem"
)

// scan reads one record. Every instant in it, and the one that it is judged by,
// are the file's. The table is STRICT, so a type that is not the column's means
// that somebody has been at work on the file itself.
func scan(row *sql.Row) (idem.Record, error) {
	var (
		rec                             idem.Record
		token, id                       []byte
		leaseEnd, expires, now          int64
		completed, status, codecVersion sql.NullInt64
		codec, code, message            sql.NullString
		body                            any // a []byte would not tell an empty one from NULL
		state                           string
	)
	err := row.Scan(
		&state, &rec.Hash.Sum, &rec.Hash.Version, &token, &id, &rec.Attempt, &rec.Reclaimed, &leaseEnd,
		&expires, &completed, &status, &codec, &codecVersion, &body, &code, &message, &now)
	if err != nil {
		return idem.Record{}, err
	}
	rec.State = idem.State(state)
	switch len(token) {
	case 0: // released
	case len(rec.Token):
		rec.Token = idem.ID(token)
	default:
		return idem.Record{}, &fieldError{"token"}
	}
	if len(id) != len(rec.ExecutionID) {
		return idem.Record{}, &fieldError{"execution_id"}
	}
	rec.ExecutionID = idem.ID(id)
	switch body := body.(type) {
	case nil:
	case []byte:
		rec.Response.Body = append([]byte{}, body...)
	default:
		return idem.Record{}, &fieldError{"response_body"}
	}
	rec.ExpiresAt = at(expires)
	rec.Expired = now >= expires
	if rec.State == idem.Processing {
		rec.LeaseLeft = duration(leaseEnd - now)
	}
	if completed.Valid {
		rec.CompletedAt = at(completed.Int64)
	}
	rec.Response.Status = idem.Status(status.Int64)
	rec.Response.Codec, rec.Response.CodecVersion = codec.String, int(codecVersion.Int64)
	if code.Valid {
		rec.Response.Error = &idem.ErrorValue{Code: code.String, Message: message.String}
	}
	return rec, nil
}

func responseArgs(r idem.Response) []any {
	args := make([]any, 6)
	if r.Status != 0 {
		args[0] = int64(r.Status)
	}
	if r.Codec != "" {
		args[1], args[2] = r.Codec, int64(r.CodecVersion)
	}
	if r.Body != nil {
		args[3] = r.Body
	}
	if r.Error != nil {
		args[4], args[5] = r.Error.Code, r.Error.Message
	}
	return args
}

// blob is NULL for no id.
func blob(id idem.ID) any {
	if id == (idem.ID{}) {
		return nil
	}
	return id[:]
}

// at is the instant that a column holds.
func at(us int64) time.Time { return time.UnixMicro(us).UTC() }

// micros rounds up: a duration that is not zero must not become zero.
func micros(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}

func duration(us int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(max(min(us, most), -most)) * time.Microsecond
}
