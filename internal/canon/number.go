package canon

import (
	"bytes"
	"errors"
	"strconv"
)

// normalizeNumbers gives every number in text, which is valid JSON without
// spaces, its one form. It returns text itself if that changes nothing.
func normalizeNumbers(text []byte) ([]byte, error) {
	var (
		out  []byte
		done int // bytes of text that are in out
		room [32]byte
	)
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i += stringLen(text[i:])
		case c == '-' || isDigit(c):
			num := text[i : i+numberLen(text[i:])]
			normal, err := appendNumber(room[:0], num)
			if err != nil {
				return nil, err
			}
			if !bytes.Equal(normal, num) {
				out = append(out, text[done:i]...)
				out = append(out, normal...)
				done = i + len(num)
			}
			i += len(num)
		default:
			i++
		}
	}
	if done == 0 {
		return text, nil
	}
	return append(out, text[done:]...), nil
}

func stringLen(text []byte) int {
	n := 1
	for ; text[n] != '"'; n++ {
		if text[n] == '\\' {
			n++
		}
	}
	return n + 1
}

func numberLen(text []byte) int {
	n := 0
	for n < len(text) && text[n] != ',' && text[n] != ']' && text[n] != '}' {
		n++
	}
	return n
}

func digitsLen(text []byte) int {
	n := 0
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// appendNumber appends the JSON number num in the layout of ECMAScript's
// Number::toString, which RFC 8785 uses too, but with all of its digits. Numbers
// come out alike exactly if they are equal: 1.0 is 1, 1E2 is 100, -0 is 0.
func appendNumber(dst, num []byte) ([]byte, error) {
	negative := num[0] == '-'
	if negative {
		num = num[1:]
	}
	whole := num[:digitsLen(num)]
	rest := num[len(whole):]
	var fraction, exponent []byte
	if len(rest) > 0 && rest[0] == '.' {
		fraction = rest[1 : 1+digitsLen(rest[1:])]
		rest = rest[1+len(fraction):]
	}
	if len(rest) > 0 {
		exponent = rest[len("e"):]
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
	const longest = 21 // digits before the point, without an exponent
	n := int64(len(digits))
	switch {
	case n <= point && point <= longest: // 12000
		dst = append(dst, digits...)
		return appendZeros(dst, point-n), nil
	case 0 < point && point <= longest: // 1.2
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...), nil
	case -6 < point && point <= 0: // 0.000012
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

func appendZeros(dst []byte, n int64) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

var errExponent = errors.New("a number has an exponent of more than 18 digits")

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
