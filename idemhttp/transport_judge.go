package idemhttp

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// A verdict is what an attempt's end means for the call.
type verdict struct {
	kind       kind
	err        error
	retryAfter time.Duration
}

type kind int

const (
	settled  kind = iota // this is the answer
	failed               // no answer, or none now
	busy                 // the call is being processed
	hopeless             // no repetition helps
)

// judgeError judges an attempt that ended without an answer. What is not known
// to be permanent is worth another attempt: the key makes it harmless.
func judgeError(err error) verdict {
	if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
		return verdict{kind: hopeless, err: err}
	}
	return verdict{kind: failed, err: err}
}

// judge judges an answer. A problem's code counts more than its status, which
// servers may change ([WithRender]).
//
// A recorded answer is final whatever its status is, and so is one that was not
// recorded although the request was carried out: another attempt would do so again.
func judge(resp *http.Response) verdict {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return verdict{}
	}
	head, err := hold(resp)
	if err != nil { // it broke off
		return verdict{kind: failed, err: err}
	}
	if resp.Header.Get(ReplayedHeader) == "true" || resp.Header.Get(RecordedHeader) == "false" {
		return verdict{}
	}
	after, asked := retryAfter(resp.Header, time.Now())
	v := verdict{retryAfter: after, err: fmt.Errorf("the server answered %s", status(resp))}
	switch code := problemCode(resp, head); code {
	case CodeInProgress, CodeLeaseLost:
		v.kind, v.err = busy, idem.ErrInProgress
		return v
	case CodeOutcomeUnknown:
		v.kind, v.err = hopeless, idem.ErrOutcomeUnknown
		return v
	case CodePayloadMismatch, CodeInvalidKey, CodeResultNotKept:
		return verdict{}
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		v.kind = failed
	case http.StatusConflict: // of another kind of server: it tells by the header whether to repeat
		if asked {
			v.kind, v.err = busy, idem.ErrInProgress
		}
	}
	return v
}

func status(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", http.StatusText(resp.StatusCode)))
}

// maxHeld bounds what is read of an answer before it is returned or given up.
const maxHeld = 64 << 10

// hold reads an answer that is short, by its length or as errors are, into
// memory: so a connection that breaks off in its middle is noticed while the
// call can still be repeated. It returns the start of an error's body. Anything
// else, and all that streams, is left unread.
func hold(resp *http.Response) ([]byte, error) {
	problem := resp.StatusCode >= 400 && isJSON(resp.Header)
	if !problem && (resp.ContentLength <= 0 || resp.ContentLength > maxHeld) {
		return nil, nil
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxHeld+1))
	if err != nil {
		resp.Body.Close()
		resp.Body = http.NoBody
		return nil, err
	}
	if len(head) > maxHeld {
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
		return head, nil
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(head))
	return head, nil
}

func isJSON(h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

func problemCode(resp *http.Response, body []byte) string {
	var p struct{ Code string }
	if resp.StatusCode < 400 || !isJSON(resp.Header) || json.Unmarshal(body, &p) != nil {
		return ""
	}
	return p.Code
}

// maxDrain bounds the time that an answer which nobody waits for may take.
const maxDrain = time.Second

// retire reads what is short of an answer that does not count, so that its
// connection can be used again, and keeps it for the caller to look at.
func retire(resp *http.Response) {
	limit := time.AfterFunc(maxDrain, func() { resp.Body.Close() })
	head, _ := io.ReadAll(io.LimitReader(resp.Body, maxHeld))
	if limit.Stop() {
		resp.Body.Close()
	}
	resp.Body = io.NopCloser(bytes.NewReader(head))
}

// retryAfter returns how long the server asks to wait: it says so in seconds, or
// by a date, which is compared with its own clock if it tells.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > math.MaxInt32 {
			seconds = math.MaxInt32 // more than any budget
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(at.Sub(now), 0), true
}
