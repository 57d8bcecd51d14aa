package storetest

import (
	"bytes"
	"math/rand/v2"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

var responseChecks = []check{
	{rule: "B49 a response must come back byte for byte", run: func(p *probe) {
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		for name, body := range map[string][]byte{
			"an empty body":                 {},
			"all byte values":               every,
			"a NUL":                         {0},
			"JSON null":                     []byte("null"),
			"JSON with a NUL":               []byte(`{"s":"a\u0000b"}`),
			"JSON in its own order":         []byte("{\"b\":1,\"a\":2,  \"a\":3}\n"),
			"a number with many digits":     []byte("12345678901234567890.10"),
			"what looks like a hex literal": []byte(`\x00`),
			"invalid UTF-8":                 []byte("\xff\xfe\xf0\x28"),
			"a mebibyte":                    random(1 << 20),
		} {
			p.roundTrip(name, idem.Succeeded, idem.Response{Status: 200, Codec: "raw", CodecVersion: 1, Body: body})
		}
	}},
	{rule: "B83 a response without a value must not come back as one with an empty value", run: func(p *probe) {
		p.roundTrip("no value", idem.Succeeded, idem.Response{Status: 200})
		p.roundTrip("an empty value", idem.Succeeded, idem.Response{Status: 200, Codec: "raw", CodecVersion: 1, Body: []byte{}})
		p.roundTrip("nothing at all", idem.Succeeded, idem.Response{})
	}},
	{rule: "B77 status, codec and version must come back", run: func(p *probe) {
		for _, status := range []idem.Status{0, 200, 204, 303, 599} {
			p.roundTrip("a status", idem.Succeeded, idem.Response{Status: status, Codec: "json", Body: []byte("1")})
		}
		p.roundTrip("a version", idem.Succeeded, idem.Response{Status: 200, Codec: "sealed+json", CodecVersion: 1_000_000, Body: []byte("1")})
	}},
	{rule: "A recorded error must come back, and no error as none", run: func(p *probe) {
		for name, e := range map[string]*idem.ErrorValue{
			"no error":               nil,
			"an error without parts": {},
			"a code":                 {Code: "out_of_stock"},
			"a message":              {Message: "there are none left"},
			"an error in unicode":    {Code: "größe", Message: "e\u0301 ≠ é \u200f שלום 🙂 \"'\\ {}%s\n"},
		} {
			p.roundTrip(name, idem.Failed, idem.Response{Status: 409, Error: e})
			p.roundTrip(name+" beside a value", idem.Failed, idem.Response{Status: 409, Codec: "json", Body: []byte("{}"), Error: e})
		}
	}},
	{rule: "A record must not change with the memory that it was made of, or that was handed out", run: func(p *probe) {
		req := request(p.key())
		p.own(req)
		sent := answer("original")
		sent.Error = &idem.ErrorValue{Code: "original"}
		_, err := p.store.Complete(p.ctx, completion(req, idem.Failed, sent))
		p.must(err, "Complete")
		scribble := func(r idem.Response) {
			copy(r.Body, "scribble")
			r.Error.Code = "scribble"
		}
		scribble(sent)
		scribble(p.lookup(req.Key).Response)
		scribble(p.claim(request(req.Key)).Response)
		if r := p.lookup(req.Key).Response; string(r.Body) != "original" || r.Error.Code != "original" {
			p.errorf("the record is now %q, %q", r.Body, r.Error.Code)
		}
	}},
}

// roundTrip fails the check if a settled record does not have the response that
// it was completed with, for those who look and those who claim.
func (p *probe) roundTrip(name string, state idem.State, r idem.Response) {
	p.t.Helper()
	req := request(p.key())
	p.own(req)
	sent := r
	sent.Body = bytes.Clone(r.Body)
	_, err := p.store.Complete(p.ctx, completion(req, state, sent))
	p.must(err, "Complete with "+name)
	for _, rec := range []idem.Record{p.lookup(req.Key), p.claim(request(req.Key))} {
		want, got := r, rec.Response
		if len(want.Body) > 1000 { // cmp would take its time
			if !bytes.Equal(want.Body, got.Body) {
				p.errorf("%s came back as %d other bytes", name, len(got.Body))
			}
			want.Body, got.Body = nil, nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			p.errorf("%s came back as another response (-want +got):\n%s", name, diff)
		}
	}
}

// random returns bytes that do not compress, always the same ones.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}
