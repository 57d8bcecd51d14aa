package idemhttp_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/idemhttp"
)

func TestCodecKeepsEveryByte(t *testing.T) {
	t.Parallel()
	for _, want := range []idemhttp.Response{
		{Status: 200},
		{Status: 599, Header: http.Header{"Content-Type": nil}, Body: []byte{}},
		{Status: 201, Header: http.Header{"Link": {"a", "", "\xff\n"}, "": {"x"}}, Body: []byte("\x00\xff{}\r\n")},
	} {
		data, err := idemhttp.Codec{}.Encode(&want, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got idemhttp.Response
		if err := (idemhttp.Codec{}).Decode(data, 1, &got, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(idemhttp.Response{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, ok := want.Header["Content-Type"]; ok {
			if _, ok := got.Header["Content-Type"]; !ok {
				t.Error("a header without values is lost")
			}
		}
	}
}

func TestCodecRefusals(t *testing.T) {
	t.Parallel()
	var resp idemhttp.Response
	for name, err := range map[string]error{
		"another type":    second(idemhttp.Codec{}.Encode("x", nil)),
		"no status":       second(idemhttp.Codec{}.Encode(&idemhttp.Response{}, nil)),
		"into another":    idemhttp.Codec{}.Decode(nil, 1, new(string), nil),
		"another version": idemhttp.Codec{}.Decode([]byte("\xc8\x01\x00\x00\x00\x02"), 2, &resp, nil),
		"nothing":         idemhttp.Codec{}.Decode(nil, 1, &resp, nil),
		"half a head":     idemhttp.Codec{}.Decode([]byte("\xc8\x00\x00\x00\x02"), 1, &resp, nil),
		"JSON":            second(json.Marshal(resp)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second(_ []byte, err error) error { return err }

func TestSealedAnswers(t *testing.T) {
	t.Parallel()
	sealed, err := codec.NewSealed(idemhttp.Codec{}, "a", map[string][]byte{"a": make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	server := once(t, created, idemhttp.WithDo(idem.WithCodec(sealed)))
	wantReplay(t, post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}"))
}

func FuzzCodecDecode(f *testing.F) {
	seed, err := idemhttp.Codec{}.Encode(&idemhttp.Response{Status: 201, Header: http.Header{"A": {"b", "c"}}, Body: []byte("body")}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var resp idemhttp.Response
		if (idemhttp.Codec{}).Decode(data, 1, &resp, nil) != nil {
			return
		}
		again, err := idemhttp.Codec{}.Encode(&resp, nil)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		var got idemhttp.Response
		if err := (idemhttp.Codec{}).Decode(again, 1, &got, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(resp, got, cmpopts.IgnoreUnexported(idemhttp.Response{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}
