package idemredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// What [Store.Check] warns of.
var (
	// ErrMayEvict means that a server that is full deletes records before their
	// time: their work is done again. Set maxmemory-policy to noeviction.
	ErrMayEvict = errors.New("idemredis: the server may evict records")

	// ErrNotDurable means that a server does not log its writes: after a restart
	// it has forgotten all, or all since its last snapshot. Set appendonly to yes.
	ErrNotDurable = errors.New("idemredis: the server forgets records when it restarts")

	// ErrNotTold means that a server does not tell the setting, as some services
	// do not.
	ErrNotTold = errors.New("idemredis: the server does not tell whether it may forget records")
)

// A SettingError is a setting of a server under which it may forget records. It
// matches [ErrMayEvict], [ErrNotDurable] or [ErrNotTold].
type SettingError struct {
	Server  string // its address
	Setting string // "maxmemory-policy" or "appendonly"
	Value   string // empty if the server does not tell
	Risk    error
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("%v: %s is %q at %s", e.Risk, e.Setting, e.Value, e.Server)
}

func (e *SettingError) Unwrap() error { return e.Risk }

// Check asks the server, or every primary of a cluster, whether its settings let
// it forget records. It returns all that it finds, each as a [*SettingError],
// joined; or the error that kept it from asking. The store works all the same:
// whether that is a warning is for the caller to say. It needs the right to INFO.
func (s *Store) Check(ctx context.Context) error {
	if err := s.refuse(ctx); err != nil {
		return err
	}
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		server := "the server"
		if c, ok := s.client.(*redis.Client); ok {
			server = c.Options().Addr
		}
		return checkServer(ctx, s.client, server)
	}
	var mu sync.Mutex
	var warnings []error
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		err := checkServer(ctx, c, c.Options().Addr)
		mu.Lock()
		defer mu.Unlock()
		if risk := (*SettingError)(nil); errors.As(err, &risk) {
			warnings = append(warnings, err)
			return nil
		}
		return err
	})
	return errors.Join(append(warnings, classify(err))...)
}

func checkServer(ctx context.Context, c redis.Cmdable, server string) error {
	var found []error
	for _, s := range [...]struct {
		section, field, setting, good string
		risk                          error
	}{
		{"memory", "maxmemory_policy", "maxmemory-policy", "noeviction", ErrMayEvict},
		{"persistence", "aof_enabled", "appendonly", "1", ErrNotDurable},
	} {
		info, err := c.Info(ctx, s.section).Result()
		if err != nil {
			return classify(err)
		}
		value, told := field(info, s.field)
		if value == s.good {
			continue
		}
		if !told {
			s.risk = ErrNotTold
		} else if s.field == "aof_enabled" {
			value = "no"
		}
		found = append(found, &SettingError{Server: server, Setting: s.setting, Value: value, Risk: s.risk})
	}
	return errors.Join(found...)
}

// field returns the value of a line of INFO.
func field(info, name string) (string, bool) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
