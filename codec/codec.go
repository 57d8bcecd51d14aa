// Package codec turns results into the bytes that a store keeps, and back.
//
// [JSON] is the default. [Sealed] wraps a codec and encrypts what it writes.
package codec

// A Codec encodes results and decodes them again, perhaps years and several
// releases later.
//
// Implementations must be safe for concurrent use. They must return errors
// instead of panicking, and their errors must not quote the value: they end up
// in logs.
type Codec interface {
	// Name is stored with every record. It must identify the encoding and must
	// not be empty: a record is only ever decoded by a codec of the same name.
	Name() string

	// Version is the version of the encoding that Encode writes. It is stored
	// with every record.
	Version() int

	// Encode must return bytes that Decode accepts, or an error: it must not
	// replace what it cannot write. It must not keep or change v.
	//
	// The associated data identifies the record. A codec that authenticates
	// what it writes must bind it in, so that bytes copied into another record
	// are refused there; any other may ignore it.
	Encode(v any, aad []byte) ([]byte, error)

	// Decode decodes data, which Encode wrote under the given version and
	// associated data, into v, a non-nil pointer to a zero value. It must read
	// all versions that may still be stored and must return an error for any
	// that it does not know. It must not keep or change data.
	Decode(data []byte, version int, v any, aad []byte) error
}
