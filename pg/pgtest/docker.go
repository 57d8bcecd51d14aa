package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

const imageVariable = "IDEM_TEST_POSTGRES_IMAGE"

func image() string { return cmp.Or(os.Getenv(imageVariable), "postgres:17-alpine") }

func startContainer(ctx context.Context, image string) (_ Source, err error) {
	defer func() {
		// testcontainers panics where it finds no Docker.
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
		if err != nil {
			err = fmt.Errorf("the image %s (%s) did not run in Docker: %w", image, imageVariable, err)
		}
	}()

	container, err := postgres.Run(ctx, image,
		postgres.BasicWaitStrategies(),
		testcontainers.WithCmdArgs("-c", "max_connections=200"),
		testcontainers.WithAdditionalLifecycleHooks(testcontainers.ContainerLifecycleHooks{
			PostCreates: []testcontainers.ContainerHook{removeAtExit},
		}))
	if err != nil {
		return Source{}, errors.Join(err, testcontainers.TerminateContainer(container))
	}
	url, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return Source{}, err
	}
	return describe(url, "Docker image "+image)
}

// remover waits for the end of this process; it stays reachable, since its pipe would be closed as garbage.
var remover *exec.Cmd

// removeAtExit does Ryuk's work where that is disabled. It waits as supervisor.sh does, for the end of a pipe.
func removeAtExit(_ context.Context, container testcontainers.Container) error {
	if !canStart || !testcontainers.ReadConfig().RyukDisabled {
		return nil
	}
	remover = exec.Command("sh", "-c", `cat; exec docker rm --force --volumes "$0"`, container.GetContainerID())
	remover.SysProcAttr = newSession()
	if _, err := remover.StdinPipe(); err != nil {
		return err
	}
	return remover.Start()
}
