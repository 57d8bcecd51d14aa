//go:build unix

package pgtest

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	canStart   = true
	noBinaries = "no server binaries (initdb, pg_ctl, postgres) on PATH or in /usr/lib/postgresql/*/bin"
)

// newSession keeps a process out of reach of the signals that are sent to the test's process group.
func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// makeDir makes the directory of a server, and returns how to run its supervisor: in a session of its own and, since
// Postgres refuses to run as root, as a user who owns the directory.
func makeDir() (string, *syscall.SysProcAttr, error) {
	attr := newSession()
	base := os.TempDir()
	if os.Geteuid() != 0 {
		dir, err := os.MkdirTemp(base, "pgtest")
		return dir, attr, err
	}

	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return "", nil, err
		}
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if !openToAll(base) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "pgtest")
	if err != nil {
		return "", nil, err
	}
	return dir, attr, os.Chown(dir, uid, gid)
}

// openToAll reports whether every user can reach dir, and remove from it what is theirs.
func openToAll(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	for need := os.FileMode(0o003); err == nil; need = 0o001 {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&need != need {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
	return false
}
