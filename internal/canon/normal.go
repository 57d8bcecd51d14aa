package canon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"sync"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

// normalize sorts the objects of text and rewrites its numbers. The text comes
// from jsontext: it is valid and compact, its strings are in their shortest form
// and no object repeats a name.
//
// jsontext could sort too, but parses once more for it: that took twice as long
// as everything here.
func normalize(text []byte) ([]byte, error) {
	members := memberPool.Get().(*[]member)
	defer memberPool.Put(members)
	w := writer{
		out:     make([]byte, 0, 2*len(text)), // the second half is for sorting
		members: (*members)[:0],
	}
	_, err := w.value(text)
	return w.out, err
}

var memberPool = sync.Pool{New: func() any { m := make([]member, 0, 64); return &m }}

// A member of an object: its name as written, without the quotes, and its place
// in the writer's out.
type member struct {
	name       []byte
	start, end int
}

type writer struct {
	out     []byte
	members []member // of the objects that are open
}

// value writes the value that src begins with, and returns how many bytes of src
// that was. Its recursion is bounded: jsontext refuses values nested deeper than
// 10,000.
func (w *writer) value(src []byte) (n int, err error) {
	switch src[0] {
	case '{':
		return w.object(src)
	case '[':
		return w.array(src)
	case '"':
		n = stringLen(src)
		w.out = append(w.out, src[:n]...)
	case 't', 'f', 'n':
		n = len("true")
		if src[0] == 'f' {
			n = len("false")
		}
		w.out = append(w.out, src[:n]...)
	default:
		n = numberLen(src)
		w.out, err = appendNumber(w.out, src[:n])
	}
	return n, err
}

func (w *writer) array(src []byte) (n int, err error) {
	for src[n] != ']' {
		w.out = append(w.out, src[n]) // '[' or ','
		n++
		if src[n] == ']' {
			break // empty
		}
		m, err := w.value(src[n:])
		if err != nil {
			return n, err
		}
		n += m
	}
	w.out = append(w.out, ']')
	return n + 1, nil
}

func (w *writer) object(src []byte) (n int, err error) {
	outer := len(w.members)
	body := len(w.out) + 1
	for src[n] != '}' {
		w.out = append(w.out, src[n]) // '{' or ','
		n++
		if src[n] == '}' {
			break // empty
		}
		start := len(w.out)
		m := stringLen(src[n:])
		name := src[n+1 : n+m-1]
		w.out = append(w.out, src[n:n+m+1]...) // with its colon
		n += m + 1
		if m, err = w.value(src[n:]); err != nil {
			return n, err
		}
		n += m
		w.members = append(w.members, member{name, start, len(w.out)})
	}
	w.sort(w.members[outer:], body)
	w.members = w.members[:outer]
	w.out = append(w.out, '}')
	return n + 1, nil
}

// sort puts members, which fill out from body on, in the order of the UTF-16
// code units of their names (RFC 8785, section 3.2.3). It writes them behind out
// and moves them back.
func (w *writer) sort(members []member, body int) {
	if slices.ContainsFunc(members, needsCodeUnits) { // hardly ever
		for i, m := range members {
			members[i].name = codeUnits(m.name)
		}
	}
	byName := func(a, b member) int { return bytes.Compare(a.name, b.name) }
	if slices.IsSortedFunc(members, byName) {
		return
	}
	slices.SortFunc(members, byName)
	end := len(w.out)
	for i, m := range members {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(w.out, w.out[m.start:m.end]...)
	}
	copy(w.out[body:], w.out[end:])
	w.out = w.out[:end]
}

// needsCodeUnits reports whether the bytes of a name may sort unlike its code
// units: because of an escape, or since a surrogate is less than U+E000.
func needsCodeUnits(m member) bool {
	return slices.ContainsFunc(m.name, func(c byte) bool { return c == '\\' || c >= 0xEE })
}

// codeUnits returns the UTF-16 code units of name, big-endian.
func codeUnits(name []byte) []byte {
	quoted := slices.Concat([]byte{'"'}, name, []byte{'"'})
	text, _ := jsontext.AppendUnquote(nil, quoted) // cannot fail: jsontext wrote it
	var units []byte
	for _, r := range string(text) {
		var buf [2]uint16
		for _, u := range utf16.AppendRune(buf[:0], r) {
			units = binary.BigEndian.AppendUint16(units, u)
		}
	}
	return units
}

func stringLen(src []byte) int {
	n := 1
	for ; src[n] != '"'; n++ {
		if src[n] == '\\' {
			n++
		}
	}
	return n + 1
}

func numberLen(src []byte) int {
	n := 0
	for n < len(src) && src[n] != ',' && src[n] != ']' && src[n] != '}' {
		n++
	}
	return n
}

var errExponent = errors.New("a number has an exponent of more than 18 digits")

// appendNumber writes the JSON number num in the layout of ECMAScript's
// Number::toString, which RFC 8785 uses too, but with all of its digits. Numbers
// come out alike exactly if they are equal: 1.0 is 1, 1E2 is 100, -0 is 0.
func appendNumber(dst, num []byte) ([]byte, error) {
	const longest = 21 // digits of an integer written without an exponent

	negative := num[0] == '-'
	if negative {
		num = num[1:]
	}
	wholeLen := digitsLen(num)
	whole, rest := num[:wholeLen], num[wholeLen:]
	var fraction, exponent []byte
	if len(rest) > 0 && rest[0] == '.' {
		n := digitsLen(rest[1:])
		fraction, rest = rest[1:1+n], rest[1+n:]
	}
	if len(rest) > 0 {
		exponent = rest[1:]
	}

	// The value is 0.digits × 10^point, with no zero at either end of digits.
	var room [32]byte
	digits := append(append(room[:0], whole...), fraction...)
	point := int64(len(whole))
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
		point--
	}
	digits = bytes.TrimRight(digits, "0")
	if len(digits) == 0 {
		return append(dst, '0'), nil // whatever its exponent
	}
	exp, err := parseExponent(exponent)
	if err != nil {
		return nil, err
	}
	point += exp

	if negative {
		dst = append(dst, '-')
	}
	n := int64(len(digits))
	switch {
	case n <= point && point <= longest: // 12000
		dst = append(dst, digits...)
		return appendZeros(dst, point-n), nil
	case 0 < point && point <= longest: // 1.2
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...), nil
	case -6 < point && point <= 0: // 0.00012
		dst = append(dst, "0."...)
		dst = appendZeros(dst, -point)
		return append(dst, digits...), nil
	default: // 1.2e+30
		dst = append(dst, digits[0])
		if n > 1 {
			dst = append(dst, '.')
			dst = append(dst, digits[1:]...)
		}
		dst = append(dst, 'e')
		if point > 0 {
			dst = append(dst, '+')
		}
		return strconv.AppendInt(dst, point-1, 10), nil
	}
}

func digitsLen(text []byte) int {
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return n
}

func appendZeros(dst []byte, n int64) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// parseExponent refuses exponents that might overflow, rather than take two of
// them for one.
func parseExponent(text []byte) (int64, error) {
	negative := len(text) > 0 && text[0] == '-'
	text = bytes.TrimLeft(text, "+-0")
	if len(text) > 18 {
		return 0, errExponent
	}
	var exp int64
	for _, c := range text {
		exp = 10*exp + int64(c-'0')
	}
	if negative {
		exp = -exp
	}
	return exp, nil
}
