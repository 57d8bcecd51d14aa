package idemredis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
)

// passing are the codes of errors that may be gone the next time: the server is
// full, loads, lacks replicas or a primary, cannot write its file, is busy with
// another script, or is not in charge of the slot at the moment.
var passing = []string{
	"OOM", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "BUSY",
	"CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOSCRIPT", "UNBLOCKED",
}

// classify gives a client's error the meaning that it has for [idem.Do]. What is
// not an answer of the server, such as a connection that is cut, may be gone the
// next time; what is, may be only if its code is passing. A wrong password, a
// missing right, a server that is not one of Redis stay.
func classify(err error) error {
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.Nil):
		return idem.ErrLeaseLost
	case errors.Is(err, redis.ErrClosed):
		return idem.Permanent(err)
	case foreign(err):
		return idem.Permanent(fmt.Errorf("idemredis: what answers is no Redis server: %w", err))
	case !errors.As(err, &answer), redis.IsMaxClientsError(err):
		return err
	}
	text := answer.Error()
	if has(text, "WRONGTYPE") { // somebody else's key in the record's place
		return errors.Join(idem.ErrCorruptRecord, err)
	}
	for _, code := range passing {
		if has(text, code) {
			return err
		}
	}
	if tooOld(text) {
		err = fmt.Errorf("idemredis: the server is older than Redis 6.2: %w", err)
	}
	return idem.Permanent(err)
}

// tooOld reports whether a server refuses what the scripts send: before 6.2 the
// option PXAT of SET, before 5 a write after TIME.
func tooOld(text string) bool {
	return strings.Contains(text, "ERR syntax error") || strings.Contains(text, "non deterministic commands")
}

// has reports whether an error has a code. Before Redis 7 that of an error
// within a script stands in the middle, "ERR Error running script …: -OOM …", as it
// does in miniredis, without the dash.
func has(text, code string) bool {
	return strings.HasPrefix(text, code+" ") || strings.Contains(text, ": -"+code+" ") || strings.Contains(text, ": "+code+" ")
}

// foreign reports whether a server answered with something that is not of the
// protocol. The client has no type for that.
func foreign(err error) bool {
	text := err.Error()
	return strings.Contains(text, "redis: can't parse") || strings.Contains(text, "redis: invalid reply")
}
