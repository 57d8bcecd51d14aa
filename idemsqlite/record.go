package idemsqlite

import (
	"database/sql/driver"
	"math"
	"time"

	"github.com/idem-go/idem"
)

// A row is one of an answer: int64, float64, string, []byte or nil. The methods
// read a column, which err names if it holds something else. The table is
// STRICT, so that means that somebody has been at work on the file itself.
type row []driver.Value

// A fieldError tells of a column that does not hold what the store writes there.
// It does not tell what it holds.
type fieldError struct{ column string }

func (e *fieldError) Error() string { return "idemsqlite: column " + e.column + " cannot be read" }

// A reader reads the columns of a row in order and remembers the first that it
// could not.
type reader struct {
	row
	next int
	err  error
}

func (r *reader) value() driver.Value {
	r.next++
	return r.row[r.next-1]
}

func (r *reader) fail(column string) {
	if r.err == nil {
		r.err = &fieldError{column}
	}
}

// integer reads a number, 0 for NULL, and whether there is one.
func (r *reader) integer(column string) (int64, bool) {
	v := r.value()
	n, ok := v.(int64)
	if v != nil && !ok {
		r.fail(column)
	}
	return n, ok
}

func (r *reader) text(column string) (string, bool) {
	v := r.value()
	s, ok := v.(string)
	if v != nil && !ok {
		r.fail(column)
	}
	return s, ok
}

// blob reads bytes: nil for NULL, and not nil for none, which the driver tells
// apart only by the type of its nil.
func (r *reader) blob(column string) []byte {
	v := r.value()
	b, ok := v.([]byte)
	switch {
	case v == nil:
		return nil
	case !ok:
		r.fail(column)
	case b == nil:
		return []byte{}
	}
	return b
}

func (r *reader) id(column string) (id idem.ID) {
	b := r.blob(column)
	if b != nil && len(b) != len(id) {
		r.fail(column)
		return id
	}
	copy(id[:], b)
	return id
}

func (r *reader) must(column string) int64 {
	n, ok := r.integer(column)
	if !ok {
		r.fail(column)
	}
	return n
}

// read reads a record. Every instant in it, and the one that it is judged by,
// are the file's.
func read(row row) (rec idem.Record, err error) {
	r := reader{row: row}
	state, _ := r.text("status")
	rec.State = idem.State(state)
	rec.Hash.Sum, _ = r.text("request_hash")
	rec.Hash.Version = int(r.must("hash_version"))
	rec.Token = r.id("token")
	rec.ExecutionID = r.id("execution_id")
	rec.Attempt = int(r.must("attempt"))
	rec.Reclaimed = r.must("reclaimed") != 0
	leaseEnd, expires := r.must("lease_expires_at"), r.must("expires_at")
	if us, ok := r.integer("completed_at"); ok {
		rec.CompletedAt = at(us)
	}
	status, _ := r.integer("response_status")
	rec.Response.Status = idem.Status(status)
	rec.Response.Codec, _ = r.text("response_codec")
	version, _ := r.integer("response_codec_version")
	rec.Response.CodecVersion = int(version)
	rec.Response.Body = r.blob("response_body")
	code, failed := r.text("error_code")
	message, _ := r.text("error_message")
	if failed {
		rec.Response.Error = &idem.ErrorValue{Code: code, Message: message}
	}
	now := r.must("now")
	rec.ExpiresAt, rec.ExpiresIn = at(expires), duration(expires-now)
	if rec.State == idem.Processing {
		rec.LeaseLeft = duration(leaseEnd - now)
	}
	return rec, r.err
}

func responseArgs(r idem.Response) []driver.Value {
	args := make([]driver.Value, 6)
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
func blob(id idem.ID) driver.Value {
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
