package idemredis_test

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
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

// Answers of servers that are not at hand. Miniredis gives them, to one command or,
// within the scripts, to one of theirs.
func TestAnswersOfServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		command, answer, want string
		permanent             bool
	}{
		"a disk that is full under an append-only file": {
			"EVALSHA", "MISCONF Errors writing to the AOF file: No space left on device", "no space left on device", false,
		},
		"a read-only replica": {
			"EVALSHA", "READONLY You can't write against a read only replica.", "READONLY", false,
		},
		"a read-only replica, told within the script": {
			"SET", "READONLY You can't write against a read only replica.", "READONLY", false,
		},
		"Redis 6.0, which does not know PXAT": {
			"SET", "ERR syntax error", "idemredis: the server is older than Redis 6.2: ", true,
		},
		"Redis 6.0, in its own words": {
			"EVALSHA", "ERR Error running script (call to f_0123456789abcdef): @user_script:52: ERR syntax error",
			"idemredis: the server is older than Redis 6.2: ", true,
		},
		"Redis 4": {
			"EVALSHA", "ERR Error running script (call to f_0123456789abcdef): @user_script:52: @user_script: 52: " +
				"Write commands not allowed after non deterministic commands. Call redis.replicate_commands() at the start",
			"idemredis: the server is older than Redis 6.2: ", true,
		},
		"no scripts": {"EVALSHA", "ERR unknown command 'EVALSHA'", "unknown command", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := miniredis.RunT(t)
			m.Server().SetPreHook(func(c *miniserver.Peer, command string, _ ...string) bool {
				if command != test.command {
					return false
				}
				c.WriteError(test.answer)
				return true
			})
			c := redis.NewClient(&redis.Options{Addr: m.Addr()})
			t.Cleanup(func() { c.Close() })
			refuses(t, idemredis.New(c), test.want, test.permanent)
			if left := m.Keys(); len(left) > 0 {
				t.Errorf("it has left %q", left)
			}
		})
	}
}

func TestWrongPasswordOfMiniredis(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	m.RequireAuth("right")
	for want, password := range map[string]string{"WRONGPASS": "wrong", "NOAUTH": ""} {
		c := redis.NewClient(&redis.Options{Addr: m.Addr(), Password: password})
		t.Cleanup(func() { c.Close() })
		refuses(t, idemredis.New(c), want, true)
	}
}

// What is no Redis server at all: it says what it has to say, to whatever is sent.
func TestWrongProtocol(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"HTTP":     "HTTP/1.1 400 Bad Request\r\n\r\n",
		"MySQL":    "J\x00\x00\x00\x0a8.0.36\x00\r\n",
		"Postgres": "E\x00\x00\x00\x85SFATAL\x00C0A000\x00Munsupported frontend protocol\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redis.NewClient(&redis.Options{Addr: listen(t, says)})
			t.Cleanup(func() { c.Close() })
			refuses(t, idemredis.New(c), "idemredis: what answers is no Redis server: ", true)
		})
	}
}

// listen returns the address of a server that answers everything with the text.
func listen(t *testing.T, text string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
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
					if _, err := io.WriteString(conn, text); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
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

// silent answers INFO with nothing, as some services do.
type silent struct{ counter }

func (*silent) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(*redis.StringCmd).SetVal("# Server\r\n")
		return nil
	}
}

func TestCheckOfAServerThatDoesNotTell(t *testing.T) {
	t.Parallel()
	c := client(t)
	c.AddHook(&silent{})
	if err := idemredis.New(c).Check(t.Context()); !errors.Is(err, idemredis.ErrNotTold) {
		t.Errorf("got %v", err)
	}
}
