package idemsqlite

import (
	"context"
	"errors"
	"time"
)

// readers are the connections that read. Reading locks nothing and waits for
// nobody, except while another process recovers the log of one that crashed.
type readers struct {
	connect func() (*conn, error)
	free    chan *conn // as many as there may be; nil for one that is not open yet
	closed  chan struct{}
}

func newReaders(n int, connect func() (*conn, error)) *readers {
	r := &readers{connect: connect, free: make(chan *conn, n), closed: make(chan struct{})}
	for range n {
		r.free <- nil
	}
	return r
}

// do lets read use a connection.
func (r *readers) do(ctx context.Context, read func(*conn) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	var c *conn
	select {
	case <-r.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	case c = <-r.free:
	}
	defer func() { r.free <- c }()
	return persist(ctx, r.closed, func() error {
		if c == nil {
			if c, err = r.connect(); err != nil {
				return err
			}
		}
		return read(c)
	})
}

// close waits for those that read.
func (r *readers) close() error {
	close(r.closed)
	var errs []error
	for range cap(r.free) {
		if c := <-r.free; c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}

// persist repeats what other connections stand in the way of, until ctx ends or
// the store is closed.
func persist(ctx context.Context, closed <-chan struct{}, try func() error) error {
	for {
		err := try()
		if !busy(err) {
			return err
		}
		pause := time.NewTimer(maxPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return gaveUp(ctx)
		case <-closed:
			pause.Stop()
			return ErrClosed
		}
	}
}
