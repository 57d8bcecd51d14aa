package idemredis

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

func corrupt(field string) error {
	return fmt.Errorf("%w: idemredis: %s", idem.ErrCorruptRecord, field)
}

// appendClaim appends the words by which a claim is known: from the state to the
// attempt.
func appendClaim(b []byte, token idem.ID, attempt int) []byte {
	b = append(append(b, idem.Processing...), ' ')
	if token == (idem.ID{}) {
		b = append(b, '-')
	} else {
		b = hex.AppendEncode(b, token[:])
	}
	b = strconv.AppendInt(append(b, ' '), int64(attempt), 10)
	return append(b, ' ')
}

// appendOrigin appends the words that stay as the claim has written them.
func appendOrigin(b []byte, req *idem.ClaimRequest) []byte {
	reclaimed := " 0 "
	if req.Reclaimed {
		reclaimed = " 1 "
	}
	b = append(hex.AppendEncode(b, req.ExecutionID[:]), reclaimed...)
	b = strconv.AppendInt(b, int64(req.Hash.Version), 10)
	b = append(append(b, ' '), req.Hash.Sum...)
	return append(b, ' ')
}

// appendResponse appends the words of a response. A dash stands for an error or a
// value that there is not.
func appendResponse(b []byte, r *idem.Response) []byte {
	b = strconv.AppendInt(b, int64(r.Status), 10)
	if r.Error == nil {
		b = append(b, " - "...)
	} else {
		b = strconv.AppendQuote(append(b, ' '), r.Error.Code)
		b = strconv.AppendQuote(append(b, ' '), r.Error.Message)
		b = append(b, ' ')
	}
	if r.Codec == "" {
		return append(b, "- "...)
	}
	b = strconv.AppendQuote(b, r.Codec)
	b = strconv.AppendInt(append(b, ' '), int64(r.CodecVersion), 10)
	return append(append(b, ' '), r.Body...)
}

// claimed reads the answer to a claim: the time alone means that it was made.
func claimed(req *idem.ClaimRequest, attempt int, reply any) (idem.Record, error) {
	if us, ok := reply.(int64); ok {
		expires := after(after(time.UnixMicro(us), req.Lease), req.Retention)
		return idem.Record{
			State: idem.Processing, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID,
			Attempt: attempt, Reclaimed: req.Reclaimed, LeaseLeft: req.Lease,
			ExpiresAt: expires, ExpiresIn: expires.Sub(time.UnixMicro(us)),
		}, nil
	}
	rec, _, err := found(reply)
	return rec, err
}

// after adds as the scripts do, in whole microseconds.
func after(t time.Time, d time.Duration) time.Time {
	return time.UnixMicro(t.UnixMicro() + microseconds(d))
}

// found reads the time and, if there is one, the record. Instead of the time there
// may be the milliseconds that are left of a settled record, as a negative number.
func found(reply any) (rec idem.Record, ok bool, err error) {
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return idem.Record{}, false, corrupt("answer")
	}
	if parts[1] == nil {
		return idem.Record{}, false, nil
	}
	n, isNumber := parts[0].(int64)
	text, isText := parts[1].(string)
	if !isNumber || !isText {
		return idem.Record{}, false, corrupt("answer")
	}
	rec, ends, err := decode(text)
	if err != nil {
		return idem.Record{}, false, err
	}
	if n < 0 {
		rec.ExpiresIn = time.Duration(-n) * time.Millisecond
		return rec, true, nil
	}
	now := time.UnixMicro(n)
	rec.ExpiresIn = rec.ExpiresAt.Sub(now)
	if rec.State == idem.Processing {
		rec.LeaseLeft = ends.Sub(now)
	}
	return rec, true, nil
}

// decode reads a record. Whatever is not as the scripts write it is refused:
// another version may have meant something by it.
func decode(text string) (rec idem.Record, ends time.Time, err error) {
	d := decoder{rest: text}
	if d.word("version") != "1" {
		d.fail("version")
	}
	rec.ExpiresAt, ends = d.instant("expires"), d.instant("ends")
	rec.State = idem.State(d.word("state"))
	if rec.State != idem.Processing || !d.absent() { // only a claim can be released
		rec.Token = d.id("token")
	}
	rec.Attempt = d.number("attempt")
	rec.ExecutionID = d.id("execution")
	rec.Reclaimed = d.flag("reclaimed")
	rec.Hash = idem.Hash{Version: d.number("hash version"), Sum: d.word("hash")}
	switch rec.State {
	case idem.Processing:
		if d.rest != "" {
			d.fail("something behind the record")
		}
	case idem.Succeeded, idem.Failed:
		rec.CompletedAt = ends
		rec.Response = d.response()
	default:
		d.fail("state")
	}
	if rec.Attempt < 1 {
		d.fail("attempt")
	}
	if d.err != nil {
		return idem.Record{}, ends, d.err
	}
	return rec, ends, nil
}

// A decoder takes words, each of which a space ends, from the front of a record.
// It keeps the first error.
type decoder struct {
	rest string
	err  error
}

func (d *decoder) fail(field string) {
	if d.err == nil {
		d.err = corrupt(field)
	}
}

func (d *decoder) word(field string) string {
	word, rest, ok := strings.Cut(d.rest, " ")
	if !ok || word == "" {
		d.fail(field)
	}
	d.rest = rest
	return word
}

// absent takes a dash, if there is one.
func (d *decoder) absent() (ok bool) {
	d.rest, ok = strings.CutPrefix(d.rest, "- ")
	return ok
}

func (d *decoder) quoted(field string) string {
	quoted, err := strconv.QuotedPrefix(d.rest)
	text, err2 := strconv.Unquote(quoted)
	rest, ok := strings.CutPrefix(d.rest[len(quoted):], " ")
	if err != nil || err2 != nil || !ok || quoted[0] != '"' {
		d.fail(field)
	}
	d.rest = rest
	return text
}

func (d *decoder) number(field string) int {
	n, err := strconv.Atoi(d.word(field))
	if err != nil {
		d.fail(field)
	}
	return n
}

func (d *decoder) flag(field string) bool {
	v := d.word(field)
	if v != "0" && v != "1" {
		d.fail(field)
	}
	return v == "1"
}

// instant takes microseconds since 1970.
func (d *decoder) instant(field string) time.Time {
	us, err := strconv.ParseInt(d.word(field), 10, 64)
	if err != nil || us <= 0 {
		d.fail(field)
	}
	return time.UnixMicro(us)
}

func (d *decoder) id(field string) (id idem.ID) {
	digits := d.word(field)
	if len(digits) != 2*len(id) {
		d.fail(field)
		return id
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil || id == (idem.ID{}) {
		d.fail(field)
	}
	return id
}

func (d *decoder) response() (r idem.Response) {
	r.Status = idem.Status(d.number("status"))
	if !d.absent() {
		r.Error = &idem.ErrorValue{Code: d.quoted("error code"), Message: d.quoted("error message")}
	}
	if d.absent() {
		if d.rest != "" {
			d.fail("a value without a codec")
		}
		return r
	}
	r.Codec, r.CodecVersion = d.quoted("codec"), d.number("codec version")
	r.Body = []byte(d.rest)
	if r.Codec == "" {
		d.fail("codec")
	}
	return r
}
