//go:build !unix

package pgtest

import (
	"errors"
	"syscall"
)

// canStart is false: the supervisor is a shell script.
const canStart = false

func newSession() *syscall.SysProcAttr { return nil }

func makeDir() (string, *syscall.SysProcAttr, error) { return "", nil, errors.ErrUnsupported }
