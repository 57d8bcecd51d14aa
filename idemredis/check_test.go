//go:build services

package idemredis_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/idemredis"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := server.client(t)
	s := idemredis.New(c)
	for _, step := range []struct {
		policy, aof        string
		evicts, notDurable bool
	}{
		{"noeviction", "no", false, true},
		{"allkeys-lru", "no", true, true},
		{"volatile-ttl", "yes", true, false},
		{"noeviction", "yes", false, false},
	} {
		do(t, c, "CONFIG", "SET", "maxmemory-policy", step.policy)
		do(t, c, "CONFIG", "SET", "appendonly", step.aof)
		err := s.Check(t.Context())
		if errors.Is(err, idemredis.ErrMayEvict) != step.evicts || errors.Is(err, idemredis.ErrNotDurable) != step.notDurable {
			t.Errorf("%s, appendonly %s: got %v", step.policy, step.aof, err)
		}
		risk := (*idemredis.SettingError)(nil)
		if errors.As(err, &risk) && (risk.Server != server.addr() || risk.Setting == "" || risk.Value == "") {
			t.Errorf("got %+v", risk)
		}
		if !step.evicts && !step.notDurable && err != nil {
			t.Errorf("a server without faults: got %v", err)
		}
	}
	do(t, c, "ACL", "SETUSER", "blind", "on", ">pass", "~*", "+@all", "-info")
	blind := idemredis.New(server.client(t, func(o *redis.Options) { o.Username, o.Password = "blind", "pass" }))
	if err := blind.Check(t.Context()); !permanent(err) {
		t.Errorf("without the right to ask: got %v", err)
	}
	server.kill()
	if err := s.Check(t.Context()); err == nil || errors.As(err, new(*idemredis.SettingError)) {
		t.Errorf("a server that is down: got %v", err)
	}
}
