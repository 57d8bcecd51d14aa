//go:build !unix

package pgtest

import (
	"errors"
	"runtime"
	"syscall"
)

const (
	canStart   = false // the supervisor is a shell script
	noBinaries = "no server binaries that pgtest can start on " + runtime.GOOS
)

func newSession() *syscall.SysProcAttr { return nil }

func makeDir() (string, *syscall.SysProcAttr, error) { return "", nil, errors.ErrUnsupported }
