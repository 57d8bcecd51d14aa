package pg

import (
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem"
)

// An answer is room for what a statement says of a key: the record that was seen,
// or none if the claim was made, and the time. Every instant in it, and the one
// that it is judged by, are the database's.
type answer struct {
	rec  idem.Record
	made bool
	now  time.Time
	n    int         // the row of claimMany's request
	by   pgtype.UUID // or the token of the claim that was made

	columns recordColumns
}

// to is the record that answers a claim.
func (a *answer) to(req *idem.ClaimRequest) idem.Record {
	if !a.made {
		return a.rec
	}
	lease := rounded(req.Lease)
	end := a.now.Add(lease).Add(rounded(req.Retention)) // together they may be longer than a Duration
	rec := idem.Record{
		State: idem.Processing, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID,
		Attempt: 1, Reclaimed: req.Reclaimed, LeaseLeft: lease, ExpiresAt: end, ExpiresIn: end.Sub(a.now),
	}
	if req.Replace != nil {
		rec.Attempt = req.Replace.Attempt + 1
	}
	return rec
}

// ScanRow implements [pgx.RowScanner].
func (a *answer) ScanRow(rows pgx.Rows) error {
	types, values, fields := rows.Conn().TypeMap(), rows.RawValues(), rows.FieldDescriptions()
	for i, to := range []any{&a.now, &a.n, &a.by}[:len(values)-1] {
		f := fields[i+1]
		if err := types.Scan(f.DataTypeOID, f.Format, values[i+1], to); err != nil {
			return pgx.ScanArgError{ColumnIndex: i + 1, FieldName: f.Name, Err: err}
		}
	}
	if a.made = values[0] == nil; a.made {
		return nil
	}
	if err := a.columns.scan(types, fields[0].Format, values[0]); err != nil {
		return pgx.ScanArgError{FieldName: fields[0].Name, Err: err}
	}
	a.rec = a.columns.record(a.now)
	return nil
}

// recordColumns are a record as it is stored.
type recordColumns struct {
	state, hash   string
	hashVersion   int
	token, id     pgtype.UUID
	attempt       int
	reclaimed     bool
	leaseEnd, end time.Time
	completed     pgtype.Timestamptz
	response      responseColumns
}

// scan reads a record's value, in the format that the exec mode has asked for.
// The value as text does not tell the types of its fields: they are the table's.
func (c *recordColumns) scan(types *pgtype.Map, format int16, value []byte) error {
	r := &c.response
	columns := [...]struct {
		to  any
		oid uint32
	}{
		{&c.state, pgtype.TextOID},
		{&c.hash, pgtype.TextOID},
		{&c.hashVersion, pgtype.Int2OID},
		{&c.token, pgtype.UUIDOID},
		{&c.id, pgtype.UUIDOID},
		{&c.attempt, pgtype.Int4OID},
		{&c.reclaimed, pgtype.BoolOID},
		{&c.leaseEnd, pgtype.TimestamptzOID},
		{&c.end, pgtype.TimestamptzOID},
		{&c.completed, pgtype.TimestamptzOID},
		{&r.status, pgtype.Int2OID},
		{&r.codec, pgtype.TextOID},
		{&r.codecVersion, pgtype.Int4OID},
		{&r.body, pgtype.ByteaOID},
		{&r.code, pgtype.TextOID},
		{&r.message, pgtype.TextOID},
	}
	binary := pgtype.NewCompositeBinaryScanner(types, value)
	var fields interface {
		Next() bool
		Bytes() []byte
		Err() error
	} = binary
	if format == pgtype.TextFormatCode {
		fields = pgtype.NewCompositeTextScanner(types, value)
	}
	for _, column := range columns {
		if !fields.Next() {
			return errors.Join(errors.New("pg: a record ends early"), fields.Err())
		}
		if format == pgtype.BinaryFormatCode {
			column.oid = binary.OID()
		}
		if err := types.Scan(column.oid, format, fields.Bytes(), column.to); err != nil {
			return err
		}
	}
	return nil
}

func (c *recordColumns) record(now time.Time) idem.Record {
	rec := idem.Record{
		State: idem.State(c.state), Hash: idem.Hash{Version: c.hashVersion, Sum: c.hash}, Token: c.token.Bytes, ExecutionID: c.id.Bytes,
		Attempt: c.attempt, Reclaimed: c.reclaimed, ExpiresAt: c.end, ExpiresIn: c.end.Sub(now), CompletedAt: c.completed.Time,
		Response: c.response.response(),
	}
	if rec.State == idem.Processing {
		rec.LeaseLeft = c.leaseEnd.Sub(now)
	}
	return rec
}

// responseColumns are a response as it is stored.
type responseColumns struct {
	status        pgtype.Int2
	codec         pgtype.Text
	codecVersion  pgtype.Int4
	body          []byte
	code, message pgtype.Text
}

func columnsOf(r idem.Response) responseColumns {
	kept := r.Codec != ""
	c := responseColumns{
		status:       pgtype.Int2{Int16: int16(r.Status), Valid: r.Status != 0},
		codec:        pgtype.Text{String: r.Codec, Valid: kept},
		codecVersion: pgtype.Int4{Int32: int32(r.CodecVersion), Valid: kept},
		body:         r.Body,
	}
	if r.Error != nil {
		c.code, c.message = text(r.Error.Code), text(r.Error.Message)
	}
	return c
}

func responseArgs(r idem.Response) []any {
	c := columnsOf(r)
	return []any{c.status, c.codec, c.codecVersion, c.body, c.code, c.message}
}

func (c *responseColumns) response() idem.Response {
	r := idem.Response{
		Status: idem.Status(c.status.Int16),
		Codec:  c.codec.String, CodecVersion: int(c.codecVersion.Int32), Body: c.body,
	}
	if c.code.Valid {
		r.Error = &idem.ErrorValue{Code: c.code.String, Message: c.message.String}
	}
	return r
}

func uuid(id idem.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != idem.ID{}} }

func text(s string) pgtype.Text { return pgtype.Text{String: s, Valid: true} }

func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: microseconds(d), Valid: true}
}

// rounded is d as it is stored.
func rounded(d time.Duration) time.Duration {
	return time.Duration(min(microseconds(d), math.MaxInt64/1000)) * time.Microsecond
}

// microseconds rounds up: a duration that is not zero must not become zero.
func microseconds(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}
