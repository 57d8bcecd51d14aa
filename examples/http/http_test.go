package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/pg/pgtest"
)

// binary is the example, built once.
var binary string

// client has connections of its own: a test server that closes would close idle
// ones of http.DefaultTransport under another test's request.
var client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "idem-example-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "http")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Stderr = os.Stderr
	code := 1
	if build.Run() == nil {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// service is the example, running.
type service struct {
	url   string
	lines []string // that it printed
	cmd   *exec.Cmd
	done  chan error
	ended chan struct{}
}

// start runs the example in a cache directory of its own.
func start(t *testing.T, args ...string) *service {
	t.Helper()
	return startIn(t, t.TempDir(), args...)
}

func startIn(t *testing.T, cache string, args ...string) *service {
	t.Helper()
	s := &service{cmd: exec.Command(binary, append([]string{"-addr", "127.0.0.1:0"}, args...)...), done: make(chan error, 1), ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache, "HOME="+cache, "LocalAppData="+cache)
	s.cmd.Stderr = t.Output()
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := bufio.NewScanner(out)
	for printed.Scan() {
		s.lines = append(s.lines, printed.Text())
		if addr, ok := strings.CutPrefix(printed.Text(), "Serving on "); ok {
			s.url, _, _ = strings.Cut(addr, ". ")
		}
		if strings.HasSuffix(printed.Text(), "/payments  # 200") {
			break
		}
	}
	go func() {
		io.Copy(io.Discard, out)
		s.done <- s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.ended
	})
	if s.url == "" {
		t.Fatalf("the example did not say where it serves: %q", s.lines)
	}
	return s
}

func (s *service) kill(t *testing.T) {
	t.Helper()
	s.cmd.Process.Kill()
	<-s.done
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (s *service) post(t *testing.T, path, user, key, body string) reply {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return reply{}
	}
	if user != "" {
		req.Header.Set("X-User", user)
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	return do(t, req)
}

func do(t *testing.T, req *http.Request) reply {
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return reply{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func (s *service) payments(t *testing.T) []Payment {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/payments", nil)
	var payments []Payment
	if err := json.Unmarshal([]byte(do(t, req).body), &payments); err != nil {
		t.Fatal(err)
	}
	return payments
}

var curlLine = regexp.MustCompile(`^  (?:sleep 1; )?curl -i '?http://[^/]+(/payments[^ ']*)'?(?: -H 'X-User: (\w+)')? -H 'Idempotency-Key(?:: (\w+)|;)' --json '(.*)'(?:  # (\d+)| &)$`)

func TestEveryCurlLineIsAnsweredAsItSays(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"by default": nil, "in memory": {"-db", inMemory}, "on Postgres": {"-dsn", database(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, args...)
			slow := make(chan reply, 1)
			walked, first := 0, map[string]reply{} // by line
			for _, line := range s.lines {
				m := curlLine.FindStringSubmatch(line)
				if m == nil {
					continue
				}
				walked++
				path, user, key, body, want := m[1], m[2], m[3], m[4], m[5]
				if want == "" { // in the background
					go func() { slow <- s.post(t, path, user, key, body) }()
					continue
				}
				got := s.post(t, path, user, key, body)
				if want == "409" {
					other := <-slow
					if got.status == 201 { // it overtook the one in the background
						got, other = other, got
					}
					if other.status != 201 || got.header.Get("Retry-After") == "" {
						t.Errorf("the slow request was answered with %d, its repetition with Retry-After %q", other.status, got.header["Retry-After"])
					}
				}
				if fmt.Sprint(got.status) != want {
					t.Errorf("%s\nwas answered with %d: %s", line, got.status, got.body)
				}
				if before, ok := first[line]; ok {
					wantReplay(t, before, got)
				}
				first[line] = got
			}
			if walked != 10 {
				t.Errorf("walked %d curl lines, want 10:\n%s", walked, strings.Join(s.lines, "\n"))
			}
			if got := s.payments(t); len(got) != 3 { // alice's, bob's and the slow one
				t.Errorf("3 payments should have been made: %v", got)
			}
		})
	}
}

func TestFailuresOfTheServerAreRunAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, status := range []int{500, 422} {
		path := fmt.Sprintf("/payments?fail=%d", status)
		first := s.post(t, path, "alice", fmt.Sprint(status), euros)
		again := s.post(t, path, "alice", fmt.Sprint(status), euros)
		if first.status != status || again.status != status {
			t.Errorf("answered with %d, then %d, want %d", first.status, again.status, status)
		}
		if got, want := again.header.Get("Idempotent-Replayed") == "true", status == 422; got != want {
			t.Errorf("status %d: replayed is %v, want %v", status, got, want)
		}
	}
	if got := s.payments(t); len(got) != 0 {
		t.Errorf("no payment should have been made: %v", got)
	}
}

func TestReplaySurvivesKill(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"by default": nil, "in a file": {"-db", filepath.Join(t.TempDir(), "a b?.db")}, "on Postgres": {"-dsn", database(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache := t.TempDir()
			s := startIn(t, cache, args...)
			first := s.post(t, "/payments", "alice", "one", euros)
			made := s.payments(t)
			s.kill(t)
			s = startIn(t, cache, args...)
			wantReplay(t, first, s.post(t, "/payments", "alice", "one", euros))
			if got := s.payments(t); len(got) != 1 || !cmp.Equal(made, got) {
				t.Errorf("one payment should have been made: %v, then %v", made, got)
			}
		})
	}
}

func TestTwoHundredAtOnceMakeOnePayment(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"by default": nil, "on Postgres": {"-dsn", database(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, args...)
			replies := make(chan reply)
			for range 200 {
				go func() { replies <- s.post(t, "/payments", "alice", "one", euros) }()
			}
			bodies := map[string]int{} // of the 201s
			for range 200 {
				switch got := <-replies; got.status {
				case 201:
					bodies[got.body]++
				case 409:
				default:
					t.Errorf("answered with %d: %s", got.status, got.body)
				}
			}
			if len(bodies) != 1 || len(s.payments(t)) != 1 {
				t.Errorf("bodies of the 201s: %v; payments: %v", bodies, s.payments(t))
			}
		})
	}
}

func TestSIGTERMAnswersWhatIsAtWork(t *testing.T) {
	t.Parallel()
	s := start(t)
	replies := make(chan reply)
	for range 2 {
		go func() { replies <- s.post(t, "/payments?delay=1s", "alice", "one", euros) }()
	}
	if got := <-replies; got.status != 409 { // so the other one is at work
		t.Fatalf("the first answer is %d, want 409", got.status)
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	if got := <-replies; got.status != 201 {
		t.Errorf("the request at work was answered with %d, want 201", got.status)
	}
	if err := <-s.done; err != nil {
		t.Errorf("exit: %v", err)
	}
}

const euros = `{"amount":1299,"currency":"EUR"}`

// database returns the URL of a schema of the test's own.
func database(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(pgtest.Server(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", pgtest.Config(t).ConnConfig.RuntimeParams["search_path"])
	u.RawQuery = query.Encode()
	return u.String()
}

// wantReplay checks that again is first, marked as a replay.
func wantReplay(t *testing.T, first, again reply) {
	t.Helper()
	if again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a repetition is not marked as a replay: %v", again.header)
	}
	for _, name := range []string{"Idempotent-Replayed", "Date"} {
		again.header.Del(name)
		first.header.Del(name)
	}
	if diff := cmp.Diff(first, again, cmp.AllowUnexported(reply{})); diff != "" {
		t.Errorf("replay (-first +again):\n%s", diff)
	}
}
