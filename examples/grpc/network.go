package main

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/idem-go/idem/examples/grpc/shop"
)

// A network is a bad one. Of the attempts that reach the server it loses some
// answers, and breaks some connections while the server is still at work.
type network struct {
	net.Listener
	mu       sync.Mutex
	rand     *rand.Rand
	conns    []net.Conn
	attempts []*attempt
	arrived  chan struct{} // closed when the next attempt arrives
}

// An attempt is one arrival of a call at the server.
type attempt struct {
	order    string
	accident accident
	ran      bool  // the handler
	err      error // the server's answer, if it got that far
}

type accident string

const (
	none       accident = ""
	lostAnswer accident = "lost: the connection broke"
	lostEarly  accident = "lost: the connection broke while the server was at work"
)

func badNetwork(seed uint64) (*network, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &network{Listener: l, rand: rand.New(rand.NewPCG(seed, 0)), arrived: make(chan struct{})}, nil
}

// Accept remembers the connection, so that it can be cut.
func (n *network) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.conns = append(n.conns, c)
	}
	return c, err
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
}

type attemptKey struct{}

// ran notes that the handler ran for the attempt that ctx belongs to.
func ran(ctx context.Context) { ctx.Value(attemptKey{}).(*attempt).ran = true }

// around sees each attempt arrive, and its answer before it is sent.
func (n *network) around(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	a := &attempt{order: req.(*shop.PayRequest).GetOrder()}
	n.mu.Lock()
	switch p := n.rand.Float64(); {
	case p < 0.35:
		a.accident = lostAnswer
	case p < 0.55:
		a.accident = lostEarly
	}
	n.attempts = append(n.attempts, a)
	close(n.arrived)
	n.arrived = make(chan struct{})
	n.mu.Unlock()

	resp, err := handler(context.WithValue(ctx, attemptKey{}, a), req)
	n.mu.Lock()
	a.err = err
	if a.accident == lostEarly && !a.ran {
		a.accident = none // there was no work
	}
	n.mu.Unlock()
	if a.accident == lostAnswer {
		n.cut() // whatever was done is done, and the client does not know
	}
	return resp, err
}

// within is around the handler alone.
func (n *network) within(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	n.mu.Lock()
	arrived := n.arrived
	n.mu.Unlock()
	if ctx.Value(attemptKey{}).(*attempt).accident == lostEarly {
		n.cut()
		select { // the client comes back before the work is done
		case <-arrived:
			time.Sleep(20 * time.Millisecond)
		case <-time.After(time.Second):
		}
	}
	return handler(ctx, req)
}
