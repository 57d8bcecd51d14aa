// Package browsertest presses the buttons of examples/http's page in a real
// browser. It is a module of its own, outside the workspace, since it needs
// Chromium: make test-browser.
package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the screenshots in docs/img anew")

// serve runs the example and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "shop")
	build := exec.Command("go", "build", "-C", "..", "-o", binary, "./http")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	cmd := exec.Command(binary, "-addr", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "idem.db"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, found := strings.CutPrefix(line, "Serving on ")
	if err != nil || !found {
		t.Fatalf("the example did not say where it serves: %q, %v", line, err)
	}
	url, _, _ = strings.Cut(url, ". ")
	return url
}

// open opens the page in a tab of its own, and watches for errors.
func open(t *testing.T, url string, width, height int64) context.Context {
	t.Helper()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Fatal("there is no Chromium on the PATH; on Debian: apt-get install chromium")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser), chromedp.NoSandbox)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)

	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page threw: %s", e.ExceptionDetails.Text)
		case *log.EventEntryAdded: // 409 and 422 are there as well, as network errors
			switch e.Entry.Source {
			case log.EntrySourceSecurity, log.EntrySourceViolation, log.EntrySourceJavascript:
				t.Errorf("the browser complains: %s", e.Entry.Text)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	run(t, ctx,
		chromedp.EmulateViewport(width, height, chromedp.EmulateScale(2)),
		chromedp.Navigate(url),
		chromedp.WaitVisible(`#pay`),
		idle(0),
	)
	return ctx
}

func run(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// idle waits until that many clicks have been counted and all calls are settled.
func idle(clicks int) chromedp.Action[chromedp.Void] {
	return poll(fmt.Sprintf(
		`document.body.dataset.pending === "0" && document.getElementById("clicks").textContent === "%d"`, clicks))
}

func poll(condition string) chromedp.Action[chromedp.Void] {
	return chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingTimeout(time.Minute))
}

// get returns what an action does.
func get[T any](t *testing.T, ctx context.Context, action chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func text(t *testing.T, ctx context.Context, id string) string {
	t.Helper()
	return get(t, ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.getElementById(%q).textContent`, id)))
}

// payments asks the server what really happened.
func payments(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url + "/payments")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list []any
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func press(t *testing.T, ctx context.Context, button string, times int) {
	t.Helper()
	for range times {
		run(t, ctx, chromedp.Click(button))
	}
}

func TestTenClicksAndOnePayment(t *testing.T) {
	t.Parallel()
	url := serve(t)
	ctx := open(t, url, 1280, 800)
	press(t, ctx, "#pay", 10)
	run(t, ctx, idle(10))
	if got := payments(t, url); got != 1 {
		t.Errorf("%d payments were made, want 1", got)
	}
	if got := text(t, ctx, "made"); got != "1" {
		t.Errorf("the page shows %s payments, want 1", got)
	}
	if seen := text(t, ctx, "log"); !strings.Contains(seen, "replayed") || !strings.Contains(seen, "in progress") {
		t.Errorf("the log shows no replay or nothing in progress: %s", seen)
	}
	overflow(t, ctx)
	shoot(t, ctx, "page-desktop.png")

	press(t, ctx, "#bad", 1) // off
	press(t, ctx, "#tamper", 1)
	run(t, ctx, poll(`document.getElementById("log").textContent.includes("mismatch")`), idle(10))
	if got := payments(t, url); got != 1 {
		t.Errorf("%d payments after one with another price, want 1", got)
	}

	// After a reload the order still has its key.
	run(t, ctx, chromedp.Reload(), chromedp.WaitVisible("#pay"), idle(10))
	press(t, ctx, "#pay", 1)
	run(t, ctx, idle(11))
	if got := payments(t, url); got != 1 {
		t.Errorf("%d payments after a reload, want 1", got)
	}

	// Without the key it goes wrong: so what was seen before is the key's doing.
	press(t, ctx, "#new", 1)
	press(t, ctx, "#keep", 1)
	press(t, ctx, "#pay", 3)
	run(t, ctx, idle(3))
	if got := payments(t, url); got < 3 {
		t.Errorf("%d payments: clicks without a key should all have paid", got)
	}
	if got := text(t, ctx, "status"); !strings.Contains(got, "times!") {
		t.Errorf("the page says %q", got)
	}
}

func TestPhone(t *testing.T) {
	t.Parallel()
	url := serve(t)
	ctx := open(t, url, 390, 844)
	press(t, ctx, "#ten", 1)
	run(t, ctx, idle(10))
	if got := payments(t, url); got != 1 {
		t.Errorf("%d payments were made, want 1", got)
	}
	overflow(t, ctx)
	run(t, ctx, chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
	shoot(t, ctx, "page-phone.png")
	dark := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, dark); err != nil {
		t.Fatal(err)
	}
	shoot(t, ctx, "page-phone-dark.png")
}

// overflow checks that nothing is wider than the screen.
func overflow(t *testing.T, ctx context.Context) {
	t.Helper()
	if over := get(t, ctx, chromedp.Evaluate[int](`document.documentElement.scrollWidth - innerWidth`)); over > 0 {
		t.Errorf("the page is %d pixels wider than the screen", over)
	}
	out := get(t, ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll(".card *")].filter((e) =>
		e.getBoundingClientRect().right > e.closest(".card").getBoundingClientRect().right).map((e) => e.outerHTML)`))
	if len(out) > 0 {
		t.Errorf("these stick out of their cards: %s", strings.Join(out, "\n"))
	}
}

// shoot takes a screenshot, which is kept if asked.
func shoot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	run(t, ctx, poll(`document.getAnimations().length === 0`))
	png := get(t, ctx, chromedp.CaptureScreenshot())
	if !*update {
		return
	}
	if err := os.MkdirAll("../../docs/img", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("../../docs/img", name), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
