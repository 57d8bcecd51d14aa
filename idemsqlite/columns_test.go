package idemsqlite_test

import (
	"database/sql"
	"encoding/hex"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

// columns reads the key's record with plain SQL. Instants become "now" if they
// lie between the times given, or "now+" what they are after it; tokens become
// names.
func columns(t *testing.T, db *sql.DB, k idem.Key, since time.Time, names map[string]string) map[string]any {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT * FROM idempotency_requests
		WHERE user_id = ? AND scope = ? AND idempotency_key = ?`, k.User, k.Scope, k.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	headings, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	values := make([]any, len(headings))
	into := make([]any, len(headings))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		t.Fatal(err)
	}
	record := map[string]any{}
	for i, name := range headings {
		v := values[i]
		switch {
		case v == nil:
			continue
		case strings.HasSuffix(name, "_at") || name == "purge_after":
			v = relative(v.(int64), since)
		case name == "token" || name == "execution_id":
			if known := names[hex.EncodeToString(v.([]byte))]; known != "" {
				v = known
			}
		case name == "response_body":
			v = string(v.([]byte))
		}
		record[name] = v
	}
	return record
}

// relative names an instant that lies a whole number of minutes after a time
// since the given one.
func relative(us int64, since time.Time) string {
	after := time.UnixMicro(us).Sub(since)
	minutes := after.Truncate(time.Minute)
	if after < 0 || after-minutes > 20*time.Second {
		return time.UnixMicro(us).String()
	}
	if minutes == 0 {
		return "now"
	}
	return "now+" + strings.TrimSuffix(minutes.String(), "0s")
}

// B55: mixed-up parameters are invisible through the store.
func TestB55EveryColumnAfterEachTransition(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	ctx := t.Context()
	k := idem.Key{User: "the user", Scope: "the scope", Key: "the key"}
	var (
		first, second, third = idem.ID{1}, idem.ID{2}, idem.ID{3}
		execution, other     = idem.ID{0xe1}, idem.ID{0xe2}
		names                = map[string]string{}
	)
	for name, id := range map[string]idem.ID{"first": first, "second": second, "third": third, "execution": execution, "other": other} {
		names[hex.EncodeToString(id[:])] = name
	}
	// Every duration is another one, so that none can stand in for another.
	claim := idem.ClaimRequest{
		Key: k, Hash: idem.Hash{Version: 7, Sum: strings.Repeat("ab", 32)}, Token: first, ExecutionID: execution,
		Lease: 2 * time.Minute, Retention: 30 * time.Minute,
	}
	check := func(what string, since time.Time, want map[string]any) {
		t.Helper()
		if diff := cmp.Diff(want, columns(t, db, k, since, names)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	with := func(base map[string]any, changes map[string]any) map[string]any {
		m := maps.Clone(base)
		for name, v := range changes {
			if m[name] = v; v == nil {
				delete(m, name)
			}
		}
		return m
	}

	start := time.Now().Truncate(time.Microsecond)
	if _, err := store.Claim(ctx, claim); err != nil {
		t.Fatal(err)
	}
	claimed := map[string]any{
		"user_id": "the user", "scope": "the scope", "idempotency_key": "the key",
		"request_hash": strings.Repeat("ab", 32), "hash_version": int64(7), "status": "processing",
		"token": "first", "execution_id": "execution", "attempt": int64(1), "reclaimed": int64(0),
		"lease_expires_at": "now+2m", "expires_at": "now+32m", "purge_after": "now+30m",
		"inserted_at": "now", "updated_at": "now",
	}
	check("claim", start, claimed)

	if err := store.Renew(ctx, idem.RenewRequest{Key: k, Token: first, Lease: 3 * time.Minute, Retention: 40 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	check("renew", start, with(claimed, map[string]any{"lease_expires_at": "now+3m", "expires_at": "now+43m"}))

	if err := store.Release(ctx, idem.ReleaseRequest{Key: k, Token: first, Retention: 20 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	check("release", start, with(claimed, map[string]any{
		"token": nil, "lease_expires_at": "now", "expires_at": "now+20m", "purge_after": "now+20m",
	}))

	seen, _, err := store.Lookup(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	reclaim := claim
	reclaim.Token, reclaim.ExecutionID, reclaim.Reclaimed, reclaim.Replace = second, other, true, &seen
	reclaim.Hash = idem.Hash{Version: 8, Sum: strings.Repeat("cd", 32)}
	reclaim.Lease, reclaim.Retention = 4*time.Minute, 50*time.Minute
	if _, err := store.Claim(ctx, reclaim); err != nil {
		t.Fatal(err)
	}
	reclaimed := with(claimed, map[string]any{
		"request_hash": strings.Repeat("cd", 32), "hash_version": int64(8), "token": "second", "execution_id": "other",
		"attempt": int64(2), "reclaimed": int64(1), "lease_expires_at": "now+4m", "expires_at": "now+54m", "purge_after": "now+20m",
	})
	check("reclaim", start, reclaimed)

	completion := idem.CompleteRequest{
		Key: k, Token: second, State: idem.Failed, Retention: 60 * time.Minute,
		Response: idem.Response{
			Status: 409, Codec: "the codec", CodecVersion: 5, Body: []byte("the body"),
			Error: &idem.ErrorValue{Code: "the code", Message: "the message"},
		},
	}
	if _, err := store.Complete(ctx, completion); err != nil {
		t.Fatal(err)
	}
	failed := with(reclaimed, map[string]any{
		"status": "failed", "expires_at": "now+1h0m", "completed_at": "now", "response_status": int64(409),
		"response_codec": "the codec", "response_codec_version": int64(5), "response_body": "the body",
		"error_code": "the code", "error_message": "the message",
	})
	check("fail", start, failed)

	// It expires, and another claim replaces it.
	sqlExec(t, db, `UPDATE idempotency_requests SET expires_at = 1, inserted_at = 1, updated_at = 1`)
	if seen, _, err = store.Lookup(ctx, k); err != nil {
		t.Fatal(err)
	}
	renewed := claim
	renewed.Token, renewed.Replace = third, &seen
	if _, err := store.Claim(ctx, renewed); err != nil {
		t.Fatal(err)
	}
	check("claim of an expired record", start, with(claimed, map[string]any{"token": "third", "attempt": int64(3)}))

	completion.Token, completion.State, completion.Retention = third, idem.Succeeded, 10*time.Minute
	completion.Response = idem.Response{Codec: "none", Body: []byte{}}
	if _, err := store.Complete(ctx, completion); err != nil {
		t.Fatal(err)
	}
	check("complete, sooner to expire and with an empty body", start, with(claimed, map[string]any{
		"token": "third", "attempt": int64(3), "status": "succeeded", "completed_at": "now",
		"expires_at": "now+10m", "purge_after": "now+10m",
		"response_codec": "none", "response_codec_version": int64(0), "response_body": "",
	}))

	sqlExec(t, db, `UPDATE idempotency_requests SET expires_at = 1, purge_after = 1`)
	if done, err := store.Purge(ctx, idem.PurgeRequest{Limit: 10}); err != nil || done.Deleted != 1 {
		t.Fatalf("Purge: %+v, %v", done, err)
	}
	check("purge", start, nil)
}

func TestB13UnitsAreMicrosecondsEverywhere(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	for _, lease := range []time.Duration{1, 500 * time.Millisecond, 2 * time.Second, 100 * 365 * 24 * time.Hour} {
		k := numbered(lease.String())
		before := time.Now().UnixMicro()
		rec, err := store.Claim(t.Context(), idem.ClaimRequest{Key: k, Token: idem.ID{1}, ExecutionID: idem.ID{1}, Lease: lease, Retention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		after := time.Now().UnixMicro()
		end := value[int64](t, db, `SELECT lease_expires_at FROM idempotency_requests WHERE idempotency_key = ?`, k.Key)
		us := max(1, lease.Microseconds())
		if end < before+us || end > after+us {
			t.Errorf("a lease of %v that began from %d to %d ends at %d", lease, before, after, end)
		}
		if rec.LeaseLeft != max(lease, time.Microsecond) {
			t.Errorf("%v are left of a lease of %v that begins", rec.LeaseLeft, lease)
		}
	}
}

func TestTheViewIsReadable(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	rec, err := store.Claim(t.Context(), idem.ClaimRequest{
		Key: key, Token: idem.ID{0xab}, ExecutionID: idem.ID{0xcd}, Lease: time.Hour, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := value[string](t, db, `SELECT token FROM idempotency_requests_readable`), "ab"+strings.Repeat("00", 15); got != want {
		t.Errorf("token: got %s, want %s", got, want)
	}
	expires, err := time.Parse(time.RFC3339, value[string](t, db, `SELECT expires_at FROM idempotency_requests_readable`))
	if off := expires.Sub(rec.ExpiresAt).Abs(); err != nil || off > time.Millisecond {
		t.Errorf("expires_at is off by %v, %v", off, err)
	}
}
