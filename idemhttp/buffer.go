package idemhttp

import "io"

// A buffer holds what was written to it in chunks, so that it need not be copied
// to grow. It is copied once, if at all: by join.
type buffer struct {
	full [][]byte
	last []byte
	size int
}

// minChunk is what [net/http.DetectContentType] looks at: it finds it in one.
const minChunk = 512

// free returns room for more, of which used takes some. If there is none it makes
// a chunk of the length that is hinted at, or of an eighth of what there is.
func (b *buffer) free(hint int) []byte {
	if len(b.last) == cap(b.last) {
		if len(b.last) > 0 {
			b.full = append(b.full, b.last)
		}
		b.last = make([]byte, 0, max(hint, b.size/8, minChunk))
	}
	return b.last[len(b.last):cap(b.last)]
}

func (b *buffer) used(n int) {
	b.last = b.last[:len(b.last)+n]
	b.size += n
}

// fill adds p to the buffer.
func fill[T []byte | string](b *buffer, p T) {
	for len(p) > 0 {
		hint := len(p)
		if b.size == 0 {
			hint += headSize // it may well be all
		}
		n := copy(b.free(hint), p)
		b.used(n)
		p = p[n:]
	}
}

// join returns everything as one, with room for so many bytes more.
func (b *buffer) join(room int) []byte {
	if len(b.full) == 0 && cap(b.last)-len(b.last) >= room {
		return b.last
	}
	joined := make([]byte, 0, b.size+room)
	for _, chunk := range b.full {
		joined = append(joined, chunk...)
	}
	return append(joined, b.last...)
}

// start returns the first bytes, at least [minChunk] unless there are less.
func (b *buffer) start() []byte {
	if len(b.full) > 0 {
		return b.full[0]
	}
	return b.last
}

// send writes everything to w.
func (b *buffer) send(w io.Writer) error {
	for _, chunk := range b.full {
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
	if len(b.last) == 0 {
		return nil
	}
	_, err := w.Write(b.last)
	return err
}
