package idemhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// A badNetwork is a proxy that does to each request the next thing of a list
// that can go wrong.
type badNetwork struct {
	t      testing.TB
	server string
	client *http.Client
	next   atomic.Int64
	late   sync.WaitGroup // requests that arrive when nobody waits any more
}

// patience is how long the client waits for an answer to begin.
const patience = 100 * time.Millisecond

var mishaps = []func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte){
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // lost on the way there
		n.reset(w)
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // lost on the way back
		n.forward(r, body)
		n.reset(w)
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // breaks off on the way back
		a := n.forward(r, body)
		maps.Copy(w.Header(), a.Header)
		w.WriteHeader(a.Status)
		io.WriteString(w, a.Body[:len(a.Body)/2])
		http.NewResponseController(w).Flush()
		n.reset(w)
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // twice at once
		first := make(chan answer, 1)
		go func() { first <- n.forward(r, body) }()
		n.reply(w, n.forward(r, body))
		<-first
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // once more, later
		n.reply(w, n.forward(r, body))
		n.afterwards(r, body)
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // slow on the way there
		n.afterwards(r, body)
		<-r.Context().Done()
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // slow on the way back
		n.forward(r, body)
		<-r.Context().Done()
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // a gateway that does not wait
		n.afterwards(r, body)
		http.Error(w, "timeout", http.StatusGatewayTimeout)
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // a gateway that is busy
		http.Error(w, "slow down", http.StatusTooManyRequests)
	},
	func(n *badNetwork, w http.ResponseWriter, r *http.Request, body []byte) { // nothing
		n.reply(w, n.forward(r, body))
	},
}

func (n *badNetwork) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	mishaps[n.next.Add(1)%int64(len(mishaps))](n, w, r, body)
}

// forward sends the request to the server, whatever becomes of the client.
func (n *badNetwork) forward(r *http.Request, body []byte) answer {
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, n.server+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		n.t.Error(err)
		return answer{}
	}
	out.Header = r.Header.Clone()
	resp, err := n.client.Do(out)
	if err != nil {
		n.t.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Error(err)
	}
	return answer{resp.StatusCode, resp.Header, string(got)}
}

// afterwards sends it when the client has an answer, or has ceased to wait.
func (n *badNetwork) afterwards(r *http.Request, body []byte) {
	n.late.Add(1)
	time.AfterFunc(2*patience, func() {
		defer n.late.Done()
		n.forward(r, body)
	})
}

func (n *badNetwork) reply(w http.ResponseWriter, a answer) {
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	io.WriteString(w, a.Body)
}

func (n *badNetwork) reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		n.t.Error(err)
		return
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// effects counts what really happened, by the body of the request.
type effects struct {
	mu   sync.Mutex
	done map[string]int
}

func (e *effects) pay(w http.ResponseWriter, r *http.Request) {
	body := string(must(io.ReadAll(r.Body)))
	if strings.HasSuffix(body, "0") { // it takes a while
		<-time.After(patience / 4)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done[body]++
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "paid %s, time %d", body, e.done[body])
}

// settle makes a call and goes on with its key until it is settled.
func settle(ctx context.Context, client *http.Client, url, body string) (string, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Header.Set("X-User", "alice")
		resp, err := client.Do(req)
		if e, ok := errors.AsType[*idemhttp.UnsettledError](err); ok && ctx.Err() == nil {
			ctx = e.Context(ctx)
			continue
		}
		if err != nil {
			return "", err
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusCreated {
			err = fmt.Errorf("answered %d: %s", resp.StatusCode, got)
		}
		return string(got), err
	}
}

// A trial is a shop behind a bad network.
type trial struct {
	network *badNetwork
	url     string
	paid    *effects
}

func newTrial(t *testing.T) *trial {
	paid := &effects{done: map[string]int{}}
	shop := serve(t, idemhttp.Middleware(memstore.New(), userOf, idemhttp.RequireKey(),
		idemhttp.WithRender(func(w http.ResponseWriter, _ *http.Request, p *idemhttp.Problem) {
			p.RetryAfter = 0 // a whole second at least: not in a test
			p.Write(w)
		}))(http.HandlerFunc(paid.pay)))
	network := &badNetwork{t: t, server: shop.URL, client: &http.Client{Transport: &http.Transport{}}}
	return &trial{network, serve(t, network).URL + "/payments", paid}
}

// body returns that of a call, and the answer that settles it.
func (*trial) body(call int) (body, settled string) {
	body = fmt.Sprintf("call %d", call)
	return body, fmt.Sprintf("paid %s, time 1", body)
}

// wantOneEffectPerCall checks what has happened, when all calls are settled.
func (tr *trial) wantOneEffectPerCall(t *testing.T, calls int) {
	t.Helper()
	tr.network.late.Wait()
	tr.paid.mu.Lock()
	defer tr.paid.mu.Unlock()
	if len(tr.paid.done) != calls {
		t.Errorf("%d payments, want %d", len(tr.paid.done), calls)
	}
	for body, n := range tr.paid.done {
		if n != 1 {
			t.Errorf("%s was paid %d times", body, n)
		}
	}
	if attempts := tr.network.next.Load(); attempts < 2*int64(calls) {
		t.Errorf("%d attempts for %d calls: that was no bad network", attempts, calls)
	}
}

func TestOneEffectPerCallOnABadNetwork(t *testing.T) {
	t.Parallel()
	const calls, callers = 40, 10
	tr := newTrial(t)
	client := &http.Client{Transport: &idemhttp.Transport{
		Base:        &http.Transport{ResponseHeaderTimeout: patience},
		MaxInterval: patience / 2,
	}}
	defer client.CloseIdleConnections()

	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := caller; i < calls; i += callers {
				body, want := tr.body(i)
				if got, err := settle(t.Context(), client, tr.url, body); err != nil || got != want {
					t.Errorf("answered %q, %v, want %q", got, err, want)
				}
			}
		})
	}
	wg.Wait()
	tr.wantOneEffectPerCall(t, calls)
}
