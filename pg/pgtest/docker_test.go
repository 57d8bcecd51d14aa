package pgtest

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestContainer(t *testing.T) {
	t.Parallel()

	// Tests do not pull the image: testdata/dockerimage.sh makes one, docker pull gets one.
	present := exec.CommandContext(t.Context(), "docker", "image", "inspect", image()).Run() == nil
	t.Logf("Docker has the image %s: %t", image(), present)
	if present {
		t.Run("vanishes with a killed test process", testContainerVanishes)
	}

	t.Run("that cannot be had fails in time, and says what was tried", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := startContainer(ctx, "registry.invalid/postgres:none", nil)
		if want := "the image registry.invalid/postgres:none (IDEM_TEST_POSTGRES_IMAGE) did not run in Docker: "; err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s…", err, want)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("failed only after %v", took)
		}
	})
}

func testContainerVanishes(t *testing.T) {
	t.Parallel()
	process, url := startHelper(t, "container")
	if got := query[string](t, connectURL(t, url), "show max_connections"); got != "200" {
		t.Errorf("max_connections is %s, want 200", got)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is gone", func() bool { return execute(url, "select 1") != nil })
}
