package storetests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// rawBytes is a codec that keeps bytes as they are.
type rawBytes struct{}

func (rawBytes) Name() string { return "raw" }
func (rawBytes) Version() int { return 1 }
func (rawBytes) Encode(v any, _ []byte) ([]byte, error) {
	return *v.(*[]byte), nil
}
func (rawBytes) Decode(data []byte, _ int, v any, _ []byte) error {
	*v.(*[]byte) = append([]byte{}, data...)
	return nil
}

// poolOfEachMode returns pools of one connection, for each exec mode, on one schema.
func poolOfEachMode(t *testing.T) map[pgx.QueryExecMode]*pgxpool.Pool {
	t.Helper()
	config, pools := migrated(t), map[pgx.QueryExecMode]*pgxpool.Pool{}
	for _, mode := range execModes {
		pools[mode] = connect(t, config, maxConns(1), execMode(mode))
	}
	return pools
}

func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

func TestB47NULInResultAndPayload(t *testing.T) {
	t.Parallel()
	type T struct{ S string }
	for mode, pool := range poolOfEachMode(t) {
		store := pg.New(pool)
		n := 0
		for i := range 2 {
			res, err := idem.Do(watchdog(t), store, k("b47 %v", mode), T{"a\x00b"}, func(context.Context) (T, idem.Status, error) {
				n++
				return T{"c\x00d"}, 201, nil
			})
			if err != nil || res.Value.S != "c\x00d" || res.Replayed != (i == 1) {
				t.Errorf("%v, call %d: %+v, %v", mode, i, res, err)
			}
		}
		if n != 1 {
			t.Errorf("%v: the closure ran %d times", mode, n)
		}
	}
}

type publicError string

func (e publicError) Error() string         { return "internal" }
func (e publicError) PublicMessage() string { return string(e) }

// What an error offers to be kept must not make its record fail: the effect has happened by then.
func TestB47FailureOfAnyText(t *testing.T) {
	t.Parallel()
	pools := poolOfEachMode(t)
	for name, message := range map[string]string{
		"NUL":           "a\x00b",
		"invalid UTF-8": "a\xffb",
		"surrogate":     "a\xed\xa0\x80b",
		"long":          strings.Repeat("x", 1<<20),
		"emoji":         "\U0001F600",
		"quotes":        `'"\'; DROP TABLE x; --`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range execModes {
				store, key := pg.New(pools[mode]), k("%s %v", name, mode)
				n := 0
				refused := func(context.Context) (int, idem.Status, error) { n++; return 1, 422, publicError(message) }
				_, err := idem.Do(watchdog(t), store, key, "p", refused, idem.WithLease(time.Second))
				if errors.Is(err, idem.ErrNotRecorded) {
					t.Errorf("%v: the failure was not recorded: %v", mode, err)
					continue
				}
				res, err := idem.Do(watchdog(t), store, key, "p", refused)
				var recorded *idem.RecordedError
				if !res.Replayed || !errors.As(err, &recorded) || n != 1 {
					t.Errorf("%v: %d runs, then %+v, %v", mode, n, res, err)
				}
			}
		})
	}
}

func TestB49ReplayIsByteForByte(t *testing.T) {
	t.Parallel()
	pools := poolOfEachMode(t)
	for name, body := range map[string][]byte{
		"JSON as it was written": []byte("{\"b\":1,\"a\":2,  \"a\":3}\n"),
		"every byte":             everyByte(),
		"nothing":                {},
		"a megabyte":             []byte(strings.Repeat("0123456789abcdef", 1<<16)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range execModes {
				store := pg.New(pools[mode])
				for i := range 2 {
					res, err := idem.Do(watchdog(t), store, k("%s %v", name, mode), "p", func(context.Context) ([]byte, idem.Status, error) {
						return body, 201, nil
					}, idem.WithCodec(rawBytes{}))
					if err != nil || res.Replayed != (i == 1) {
						t.Fatalf("%v, call %d: %v", mode, i, err)
					}
					if !bytes.Equal(body, res.Value) {
						t.Errorf("%v, call %d: %d bytes, other than the %d recorded", mode, i, len(res.Value), len(body))
					}
				}
			}
		})
	}
}

// json.RawMessage is canonical only in the hash, not in the answer.
func TestB49RawMessageKeepsItsBytes(t *testing.T) {
	t.Parallel()
	store := pg.New(open(t))
	want := json.RawMessage(`{"b":1,"a":2}`)
	for range 2 {
		res, err := idem.Do(watchdog(t), store, k("b49"), "p", func(context.Context) (json.RawMessage, idem.Status, error) {
			return want, 201, nil
		})
		if diff := cmp.Diff(string(want), string(res.Value)); err != nil || diff != "" {
			t.Errorf("error %v, value (-want +got):\n%s", err, diff)
		}
	}
}
