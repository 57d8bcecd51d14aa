package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

const imageVariable = "IDEM_TEST_POSTGRES_IMAGE"

func image() string { return cmp.Or(os.Getenv(imageVariable), "postgres:17-alpine") }

// A containerServer runs in Docker.
type containerServer struct {
	*postgres.PostgresContainer
	address string
}

// startContainer starts a server on a fixed port of this host, which stays its own when it is restarted.
func startContainer(ctx context.Context, image string, settings []string) (_ *containerServer, err error) {
	defer func() {
		// testcontainers panics where it finds no Docker.
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
		if err != nil {
			err = fmt.Errorf("the image %s (%s) did not run in Docker: %w", image, imageVariable, err)
		}
	}()
	var args []string
	for _, setting := range slices.Concat(defaults, settings) {
		args = append(args, "-c", setting)
	}
	// Only binding it tells whether a port is free.
	for range 10 {
		port := strconv.Itoa(randomPort())
		var c *postgres.PostgresContainer
		c, err = postgres.Run(ctx, image,
			postgres.BasicWaitStrategies(),
			testcontainers.WithCmdArgs(args...),
			testcontainers.WithHostConfigModifier(func(host *container.HostConfig) {
				host.PortBindings = network.PortMap{network.MustParsePort("5432/tcp"): {{HostPort: port}}}
			}),
			testcontainers.WithAdditionalLifecycleHooks(testcontainers.ContainerLifecycleHooks{
				PostCreates: []testcontainers.ContainerHook{removeAtExit},
			}))
		if err == nil {
			s := &containerServer{PostgresContainer: c}
			if s.address, err = c.ConnectionString(ctx, "sslmode=disable"); err == nil {
				return s, nil
			}
		}
		err = errors.Join(err, testcontainers.TerminateContainer(c))
		if !strings.Contains(err.Error(), "port is already allocated") && !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
	return nil, err
}

func (s *containerServer) url() string { return s.address }

func (s *containerServer) kill() error {
	var atOnce time.Duration
	return s.Stop(context.Background(), &atOnce)
}

func (s *containerServer) restart() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.PostgresContainer.Start(ctx); err != nil {
		return err
	}
	for { // what Start waits for, it has logged before
		err := execute(s.address, "select 1")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *containerServer) close() { _ = testcontainers.TerminateContainer(s) }

// removers wait for the end of this process, one for each container; they stay reachable, since their pipes would be
// closed as garbage.
var (
	removersMu sync.Mutex
	removers   []*exec.Cmd
)

// removeAtExit does Ryuk's work where that is disabled. It waits as supervisor.sh does, for the end of a pipe.
func removeAtExit(_ context.Context, c testcontainers.Container) error {
	if !canStart || !testcontainers.ReadConfig().RyukDisabled {
		return nil
	}
	remover := exec.Command("sh", "-c", `cat; exec docker rm --force --volumes "$0"`, c.GetContainerID())
	remover.SysProcAttr = newSession()
	if _, err := remover.StdinPipe(); err != nil {
		return err
	}
	removersMu.Lock()
	defer removersMu.Unlock()
	removers = append(removers, remover)
	return remover.Start()
}
