package idemredis

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem"
)

func corrupt(field string) error {
	return fmt.Errorf("%w: idemredis: %s", idem.ErrCorruptRecord, field)
}

// appendResponse appends the names and values of a response's fields. What there
// is not has no field.
func appendResponse(args []any, r idem.Response) []any {
	if r.Status != 0 {
		args = append(args, "status", int(r.Status))
	}
	if r.Codec != "" {
		args = append(args, "codec", r.Codec, "codec_version", r.CodecVersion, "body", r.Body)
	}
	if r.Error != nil {
		args = append(args, "error_code", r.Error.Code, "error_message", r.Error.Message)
	}
	return args
}

// claimed reads the answer to a claim.
func claimed(req idem.ClaimRequest, reply any) (idem.Record, error) {
	if parts, _ := reply.([]any); len(parts) == 2 {
		if attempt, ok := parts[1].(int64); ok {
			now, ok := instant(parts[0])
			if !ok {
				return idem.Record{}, corrupt("answer")
			}
			expires := after(after(now, req.Lease), req.Retention)
			return idem.Record{
				State: idem.Processing, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID,
				Attempt: int(attempt), Reclaimed: req.Reclaimed, LeaseLeft: req.Lease,
				ExpiresAt: expires, ExpiresIn: expires.Sub(now),
			}, nil
		}
	}
	rec, _, err := found(reply)
	return rec, err
}

// after adds as the scripts do, in whole microseconds.
func after(t time.Time, d time.Duration) time.Time {
	return time.UnixMicro(t.UnixMicro() + microseconds(d))
}

// found reads the time and, if there is one, the record.
func found(reply any) (rec idem.Record, ok bool, err error) {
	parts, _ := reply.([]any)
	if len(parts) == 1 {
		return idem.Record{}, false, nil
	}
	if len(parts) != 2 {
		return idem.Record{}, false, corrupt("answer")
	}
	now, isTime := instant(parts[0])
	fields, isList := parts[1].([]any)
	if !isTime || !isList {
		return idem.Record{}, false, corrupt("answer")
	}
	rec, err = decode(fields, now)
	return rec, err == nil, err
}

// decode reads a record. Whatever is not as the scripts write it is refused:
// another version may have meant something by it.
func decode(fields []any, now time.Time) (idem.Record, error) {
	d := decoder{values: make(map[string]string, len(fields)/2)}
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		value, ok := fields[i+1].(string)
		if !ok {
			return idem.Record{}, corrupt("answer")
		}
		d.values[name] = value
	}
	rec := idem.Record{
		State:       idem.State(d.text("state")),
		Hash:        idem.Hash{Version: d.number("hash_version"), Sum: d.text("hash")},
		ExecutionID: d.id("execution"),
		Attempt:     d.number("attempt"),
		Reclaimed:   d.flag("reclaimed"),
		ExpiresAt:   d.instant("expires"),
	}
	rec.ExpiresIn = rec.ExpiresAt.Sub(now)
	switch rec.State {
	case idem.Processing:
		if d.has("token") {
			rec.Token = d.id("token")
		}
		rec.LeaseLeft = d.instant("lease_end").Sub(now)
	case idem.Succeeded, idem.Failed:
		rec.Token, rec.CompletedAt = d.id("token"), d.instant("completed")
		d.text("lease_end") // of the claim: says nothing any more
		rec.Response = d.response()
	default:
		d.fail("state")
	}
	if rec.Attempt < 1 {
		d.fail("attempt")
	}
	if d.err == nil && len(d.values) > 0 {
		d.fail("a field of unknown name")
	}
	if d.err != nil {
		return idem.Record{}, d.err
	}
	return rec, nil
}

// A decoder takes values out of a record, so that what is left in the end is
// unknown. It keeps the first error.
type decoder struct {
	values map[string]string
	err    error
}

func (d *decoder) fail(field string) {
	if d.err == nil {
		d.err = corrupt(field)
	}
}

func (d *decoder) has(field string) bool {
	_, ok := d.values[field]
	return ok
}

func (d *decoder) text(field string) string {
	v, ok := d.values[field]
	if !ok {
		d.fail(field)
	}
	delete(d.values, field)
	return v
}

func (d *decoder) number(field string) int {
	n, err := strconv.Atoi(d.text(field))
	if err != nil {
		d.fail(field)
	}
	return n
}

func (d *decoder) flag(field string) bool {
	v := d.text(field)
	if v != "0" && v != "1" {
		d.fail(field)
	}
	return v == "1"
}

func (d *decoder) instant(field string) time.Time {
	t, ok := instant(d.text(field))
	if !ok {
		d.fail(field)
	}
	return t
}

func (d *decoder) id(field string) (id idem.ID) {
	v := d.text(field)
	if len(v) == 36 {
		_, _ = hex.Decode(id[:], []byte(v[:8]+v[9:13]+v[14:18]+v[19:23]+v[24:]))
	}
	if id == (idem.ID{}) || id.String() != v {
		d.fail(field)
	}
	return id
}

func (d *decoder) response() (r idem.Response) {
	if d.has("status") {
		r.Status = idem.Status(d.number("status"))
	}
	if d.has("codec") || d.has("body") {
		r.Codec, r.CodecVersion, r.Body = d.text("codec"), d.number("codec_version"), []byte(d.text("body"))
		if r.Codec == "" {
			d.fail("codec")
		}
	}
	if d.has("error_code") || d.has("error_message") {
		r.Error = &idem.ErrorValue{Code: d.text("error_code"), Message: d.text("error_message")}
	}
	return r
}

// instant reads microseconds since 1970.
func instant(v any) (time.Time, bool) {
	text, _ := v.(string)
	us, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(us), err == nil && us > 0
}
