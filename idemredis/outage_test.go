package idemredis_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
)

// permanent reports whether Do would not repeat a request after this error.
func permanent(err error) bool {
	mark := reflect.TypeOf(idem.Permanent(errors.New(""))) // a type that is not exported
	for ; err != nil; err = errors.Unwrap(err) {
		if reflect.TypeOf(err) == mark {
			return true
		}
	}
	return false
}

// refuses fails the test if a store that cannot be used runs a closure, or gives
// another error than is wanted, or is asked more often than it should be.
func refuses(t *testing.T, s *idemredis.Store, want string, wantPermanent bool) {
	t.Helper()
	_, err := idem.Do(t.Context(), s, key, "payload", mustNotRun(t))
	if !errors.Is(err, idem.ErrUnavailable) || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
		t.Errorf("Do: got error %v, want ErrUnavailable with %q", err, want)
	}
	if _, err := s.Claim(t.Context(), claim(1)); permanent(err) != wantPermanent {
		t.Errorf("Claim: got error %v, permanent: %v, want %v", err, permanent(err), wantPermanent)
	}
}

func TestB62AStoreThatIsDownRunsNothing(t *testing.T) {
	t.Parallel()
	if !hasBinary(t) {
		return
	}
	server := start(t)
	s := idemredis.New(server.client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }))
	res, err := idem.Do(t.Context(), s, key, "payload", func(context.Context) (string, idem.Status, error) {
		server.kill()
		return "done", 201, nil
	}, idem.WithLease(2*time.Second))
	if !errors.Is(err, idem.ErrNotRecorded) || res.Value != "done" {
		t.Errorf("a server that is killed between claim and completion: got %+v, %v", res, err)
	}
	refuses(t, s, "refused", false)
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	if !hasBinary(t) {
		return
	}
	server := start(t, "--requirepass", "right")
	for want, password := range map[string]string{"WRONGPASS": "wrong", "auth": ""} {
		refuses(t, idemredis.New(server.client(t, func(o *redis.Options) { o.Password = password })), want, true)
	}
}

func TestMissingRight(t *testing.T) {
	t.Parallel()
	if !hasBinary(t) {
		return
	}
	server := start(t)
	do(t, server.client(t), "ACL", "SETUSER", "reader", "on", ">pass", "~*", "+@read")
	s := idemredis.New(server.client(t, func(o *redis.Options) { o.Username, o.Password = "reader", "pass" }))
	refuses(t, s, "NOPERM", true)
}

func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	if !hasBinary(t) {
		return
	}
	primary, replica := start(t), start(t)
	c := replica.client(t)
	follow(t, c, primary)
	refuses(t, idemredis.New(c), "READONLY", false)
}

func TestFullMemory(t *testing.T) {
	t.Parallel()
	if !hasBinary(t) {
		return
	}
	c := start(t, "--maxmemory-policy", "noeviction").client(t)
	s := idemredis.New(c)
	if _, err := idem.Do(t.Context(), s, numbered(1), "payload", returns("done")); err != nil {
		t.Fatal(err)
	}
	do(t, c, "CONFIG", "SET", "maxmemory", "1")
	refuses(t, s, "OOM", false)
	if c.Exists(t.Context(), recordKey(t, s, key)).Val() != 0 {
		t.Error("a claim without memory has left something")
	}
}

func TestWrongProtocol(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := make([]byte, 512)
				for {
					if _, err := conn.Read(b); err != nil {
						return
					}
					if _, err := conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	c := redis.NewClient(&redis.Options{Addr: l.Addr().String()})
	defer c.Close()
	refuses(t, idemredis.New(c), "", true)
}

// A server that does not answer does not hold a caller for longer than its
// context says, whatever the client's settings.
func TestMethodsReturnWhenTheirContextEnds(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // connects, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := redis.NewClient(&redis.Options{Addr: l.Addr().String(), ReadTimeout: time.Minute})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := idemredis.New(c).Claim(ctx, claim(1)); !errors.Is(err, context.DeadlineExceeded) || permanent(err) {
		t.Errorf("got error %v", err)
	}
}

func TestBadOptionsFailEveryMethod(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	c := client(t)
	for name, s := range map[string]*idemredis.Store{
		"a nil client":       idemredis.New(nil),
		"a ring":             idemredis.New(ring),
		"a brace that opens": idemredis.New(c, idemredis.WithPrefix("{a")),
		"braces":             idemredis.New(c, idemredis.WithPrefix("{a}:")),
	} {
		refuses(t, s, "idemredis: ", true)
		_, purge := s.Purge(t.Context(), idem.PurgeRequest{Limit: 1})
		_, _, lookup := s.Lookup(t.Context(), key)
		if purge == nil || lookup == nil || s.Check(t.Context()) == nil {
			t.Errorf("%s: Purge %v, Lookup %v, Check %v", name, purge, lookup, s.Check(t.Context()))
		}
	}
}

func TestAnOwnerWhoseRecordIsGoneIsTold(t *testing.T) {
	t.Parallel()
	s, c := open(t), client(t)
	res, err := idem.Do(t.Context(), s, key, "payload", func(ctx context.Context) (string, idem.Status, error) {
		return "done", 201, c.Del(ctx, recordKey(t, s, key)).Err()
	})
	if !errors.Is(err, idem.ErrLeaseLost) || res.Value != "done" {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, found, err := s.Lookup(t.Context(), key); found || err != nil {
		t.Errorf("the completion made the record again: %v, %v", found, err)
	}
}
