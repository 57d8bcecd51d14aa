package codec_test

import (
	"bytes"
	"fmt"

	"github.com/idem-go/idem/codec"
)

// Version 1 of a receipt had an amount in euros, version 2 counts cents and
// names the currency. Receipts stored before the change are still replayed.
func ExampleJSON_upcast() {
	type receipt struct {
		Cents    int64
		Currency string
	}
	receipts := codec.JSON{
		SchemaVersion: 2,
		Upcast: func(version int, data []byte) ([]byte, error) {
			var v1 struct{ Euros int64 }
			if err := (codec.JSON{}).Decode(data, version, &v1, nil); err != nil {
				return nil, err
			}
			return codec.JSON{}.Encode(receipt{v1.Euros * 100, "EUR"}, nil)
		},
	}

	stored := []byte(`{"Euros":12}`)
	var r receipt
	if err := receipts.Decode(stored, 1, &r, nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%+v\n", r)
	// Output: {Cents:1200 Currency:EUR}
}

func ExampleNewSealed() {
	keys := map[string][]byte{ // from a secret store
		"2024": bytes.Repeat([]byte{1}, 32),
		"2025": bytes.Repeat([]byte{2}, 32),
	}
	sealed, err := codec.NewSealed(codec.JSON{}, "2025", keys)
	if err != nil {
		fmt.Println(err)
		return
	}
	data, err := sealed.Encode("IBAN DE02 1203 0000", []byte("record 1"))
	if err != nil {
		fmt.Println(err)
		return
	}

	var iban string
	fmt.Println(sealed.Decode(data, 1, &iban, []byte("record 2")))
	fmt.Println(sealed.Decode(data, 1, &iban, []byte("record 1")), iban)
	// Output:
	// codec: sealed value does not open: cipher: message authentication failed
	// <nil> IBAN DE02 1203 0000
}
