package pgtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Proxy stands between clients and their server. It counts round trips, and breaks the connection at a chosen point
// of the conversation. Its methods are safe for concurrent use.
type Proxy struct {
	config *pgxpool.Config
	ctx    context.Context // done when the test is

	mu         sync.Mutex
	links      map[*link]struct{}
	roundTrips int
	stalls     int // that are not released yet

	matching sync.Mutex // held while match functions run: they may call methods that take mu
	drops    []*drop
}

// A drop is an order to lose the reply to one request.
type drop struct {
	match func(request []byte) bool
	done  chan struct{}
}

// A link is one client's connection.
type link struct {
	client, server net.Conn

	mu      sync.Mutex // taken before Proxy.mu
	replies []byte     // not forwarded yet

	// Guarded by Proxy.mu: the order, if any, to lose the reply to the request of this number, counted from 1.
	drop   *drop
	dropAt int
}

// NewProxy starts a proxy in front of the server that config leads to, and stops it when the test ends. It does not
// speak TLS.
func NewProxy(t testing.TB, config *pgxpool.Config) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{config: config.Copy(), ctx: ctx, links: make(map[*link]struct{})}

	conn := p.config.ConnConfig
	network, server := pgconn.NetworkAddress(conn.Host, conn.Port)
	conn.Host, conn.Port = "127.0.0.1", uint16(listener.Addr().(*net.TCPAddr).Port)
	conn.TLSConfig, conn.Fallbacks = nil, nil

	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(client, network, server) })
		}
	})
	t.Cleanup(func() {
		cancel()
		listener.Close()
		running.Wait()
	})
	return p
}

// Config returns the configuration given to [NewProxy], changed to lead through the proxy.
func (p *Proxy) Config() *pgxpool.Config { return p.config.Copy() }

// RoundTrips returns how often the server has told that it is ready for the next query: once for each Sync or simple
// query that a client sent. Connecting does not count; preparing a statement, which pgx does at its first use on a
// connection, does. A reply counts when it reaches the proxy, even if it is then dropped or held.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roundTrips
}

// DropReply loses the reply to the next request that matches: the server gets the request and answers it in full, so it
// has surely been executed, but the client sees its connection break instead. The channel is closed when that has
// happened.
//
// A request is what a client sends up to and including a Sync or simple query, as raw frontend messages. An SQL text is
// in it only where pgx does not use a statement prepared before; the values of parameters are in it always.
//
// Calls of match do not overlap. To lose a request before it reaches the server, match may call Cut and return false. It
// must not call DropReply.
func (p *Proxy) DropReply(match func(request []byte) bool) <-chan struct{} {
	d := &drop{match: match, done: make(chan struct{})}
	p.matching.Lock()
	defer p.matching.Unlock()
	p.drops = append(p.drops, d)
	return d.done
}

// Stall holds all replies, on connections yet to be made too, until release is called. Requests still reach the server.
func (p *Proxy) Stall() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalls++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.stalls--
		links := slices.Collect(maps.Keys(p.links))
		p.mu.Unlock()
		for _, l := range links {
			_ = p.forward(l, nil) // a link that is cut has nothing to forward
		}
	})
}

// Cut closes all connections at once. The server still executes what has reached it. The proxy accepts new connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

func (l *link) cut() {
	l.client.Close()
	l.server.Close()
}

func (p *Proxy) serve(client net.Conn, network, address string) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(p.ctx, network, address)
	if err != nil {
		return // to the client it looks like a server that is down
	}
	l := &link{client: client, server: server}
	defer context.AfterFunc(p.ctx, l.cut)()
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()

	var requests sync.WaitGroup
	requests.Go(func() { p.forwardRequests(l) })
	p.forwardReplies(l)
	requests.Wait()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) forwardRequests(l *link) {
	defer l.cut()
	r := bufio.NewReader(l.client)
	message, err := readMessage(r, false)
	if err == nil {
		_, err = l.server.Write(message)
	}
	var request []byte
	requests, doomed := 0, false // counts those that the server answers with ReadyForQuery
	for err == nil {
		if message, err = readMessage(r, true); err != nil {
			return
		}
		request = append(request, message...)
		switch message[0] {
		case 'P', 'B', 'D', 'E', 'C': // Parse, Bind, Describe, Execute, Close
			// Held until the request is complete, lest the server answers before it is known whether to lose that.
			continue
		case 'S', 'Q', 'F': // Sync, Query, FunctionCall: the server answers with one ReadyForQuery
			requests++
			if !doomed {
				doomed = p.matchDrop(l, request, requests)
			}
		}
		_, err = l.server.Write(request)
		request = nil
	}
}

// matchDrop reports whether the reply to the n-th request of the link is to be lost, which ends the link.
func (p *Proxy) matchDrop(l *link, request []byte, n int) bool {
	p.matching.Lock()
	defer p.matching.Unlock()
	i := slices.IndexFunc(p.drops, func(d *drop) bool { return d.match(request) })
	if i < 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.drop, l.dropAt = p.drops[i], n
	p.drops = slices.Delete(p.drops, i, i+1)
	return true
}

func (p *Proxy) forwardReplies(l *link) {
	defer l.cut()
	r := bufio.NewReader(l.server)
	answered := -1 // the first ReadyForQuery answers the startup message, which is no request
	for {
		message, err := readMessage(r, true)
		if err != nil {
			return
		}
		ready := message[0] == 'Z' // ReadyForQuery
		p.mu.Lock()
		lose := l.drop != nil && answered+1 == l.dropAt
		if ready {
			answered++
			if answered > 0 {
				p.roundTrips++
			}
		}
		p.mu.Unlock()

		switch {
		case lose && ready:
			l.cut()
			close(l.drop.done)
			return
		case lose:
		default:
			if p.forward(l, message) != nil {
				return
			}
		}
	}
}

// forward sends the message, after those that were held, unless it is to be held too.
func (p *Proxy) forward(l *link, message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replies = append(l.replies, message...)
	p.mu.Lock()
	stalled := p.stalls > 0
	p.mu.Unlock()
	if stalled {
		return nil
	}
	_, err := l.client.Write(l.replies)
	l.replies = l.replies[:0]
	return err
}

// readMessage reads one message: a type, which the first message of a client lacks, a length that counts itself, a body.
func readMessage(r *bufio.Reader, typed bool) ([]byte, error) {
	size := 4
	if typed {
		size = 5
	}
	header, err := r.Peek(size)
	if err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(header[size-4:])
	if length < 4 || length > 1<<30 { // 1 GB is the most that Postgres takes
		return nil, errors.New("pgtest: not a message of the Postgres protocol")
	}
	message := make([]byte, size-4+int(length))
	_, err = io.ReadFull(r, message)
	return message, err
}
