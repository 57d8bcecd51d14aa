package storetests_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// A row is every column of a record, read with plain SQL. Instants are marked by what they are: the time of the
// transition, or an offset from it or from the first claim.
type row map[string]any

// goldenRow reads the one row. at0 is the first claim's time, in the database.
const goldenRow = `
SELECT to_jsonb(r)
	|| jsonb_build_object(
		'token', CASE WHEN token IS NULL THEN NULL ELSE encode(sha256(convert_to(token::text, 'UTF8')), 'hex') END,
		'response_body', convert_from(response_body, 'UTF8'),
		'inserted_at', updated_at - inserted_at = interval '0', 'updated_at', now() - updated_at BETWEEN '0' AND '30s',
		'lease_expires_at', (extract(epoch FROM lease_expires_at - updated_at) * 1000)::bigint,
		'expires_at', (extract(epoch FROM expires_at - updated_at) * 1000)::bigint,
		'purge_after', (extract(epoch FROM purge_after - inserted_at) * 1000)::bigint,
		'completed_at', (extract(epoch FROM completed_at - updated_at) * 1000)::bigint)
FROM ` + table + ` r`

func readRow(t *testing.T, db querier) (r row) {
	t.Helper()
	if err := json.Unmarshal(query[[]byte](t, db, goldenRow), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func tokenSum(id idem.ID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return hex.EncodeToString(sum[:])
}

func TestB55EveryColumnAfterEachTransition(t *testing.T) {
	t.Parallel()
	pool := open(t)
	store := pg.New(pool)
	ctx := watchdog(t)
	key := idem.Key{User: "the user", Scope: "the scope", Key: "the key"}
	const lease, retention = 2 * time.Hour, 50 * time.Hour
	claim := idem.ClaimRequest{
		Key: key, Hash: idem.Hash{Version: 7, Sum: "hash 1"}, Token: idem.ID{0xa1}, ExecutionID: idem.ID{0xe1},
		Lease: lease, Retention: retention,
	}
	seen := func() *idem.Record {
		rec, _, err := store.Lookup(ctx, key)
		wantErr(t, err, nil)
		return &rec
	}
	// What is expected is the row before with what the transition changes; durations are in milliseconds.
	want := row{
		"user_id": "the user", "scope": "the scope", "idempotency_key": "the key",
		"request_hash": "hash 1", "hash_version": 7.0, "status": "processing",
		"token": tokenSum(idem.ID{0xa1}), "execution_id": idem.ID{0xe1}.String(), "attempt": 1.0, "reclaimed": false,
		"lease_expires_at": ms(lease), "expires_at": ms(lease + retention), "purge_after": ms(retention),
		"inserted_at": true, "updated_at": true, "completed_at": nil,
		"response_status": nil, "response_codec": nil, "response_codec_version": nil, "response_body": nil,
		"error_code": nil, "error_message": nil,
	}
	unanswered := row{
		"completed_at": nil, "response_status": nil, "response_codec": nil, "response_codec_version": nil,
		"response_body": nil, "error_code": nil, "error_message": nil,
	}
	for _, step := range []struct {
		name    string
		do      func() error
		changes row
	}{
		{"claim", func() error { _, err := store.Claim(ctx, claim); return err }, row{}},
		{"claim again", func() error { _, err := store.Claim(ctx, claim); return err }, row{}},
		{"renew", func() error {
			return store.Renew(ctx, idem.RenewRequest{Key: key, Token: idem.ID{0xa1}, Lease: 3 * lease, Retention: 2 * retention})
		}, row{"inserted_at": false, "lease_expires_at": ms(3 * lease), "expires_at": ms(3*lease + 2*retention)}},
		{"release", func() error {
			return store.Release(ctx, idem.ReleaseRequest{Key: key, Token: idem.ID{0xa1}, Retention: 3 * retention})
		}, row{"token": nil, "lease_expires_at": 0.0, "expires_at": ms(3 * retention)}},
		{"take-over of the released", func() error {
			again := claim
			again.Hash, again.Token, again.ExecutionID = idem.Hash{Version: 8, Sum: "hash 2"}, idem.ID{0xa2}, idem.ID{0xe2}
			again.Replace = seen()
			_, err := store.Claim(ctx, again)
			return err
		}, row{
			"request_hash": "hash 2", "hash_version": 8.0, "token": tokenSum(idem.ID{0xa2}), "execution_id": idem.ID{0xe2}.String(),
			"attempt": 2.0, "lease_expires_at": ms(lease), "expires_at": ms(lease + retention),
		}},
		{"reclaim of the stale", func() error {
			endLease(t, pool, key)
			again := claim
			again.Token, again.Reclaimed, again.Replace = idem.ID{0xa3}, true, seen()
			_, err := store.Claim(ctx, again)
			return err
		}, row{
			"request_hash": "hash 1", "hash_version": 7.0, "token": tokenSum(idem.ID{0xa3}), "execution_id": idem.ID{0xe1}.String(),
			"attempt": 3.0, "reclaimed": true,
		}},
		{"fail", func() error {
			_, err := store.Complete(ctx, idem.CompleteRequest{
				Key: key, Token: idem.ID{0xa3}, State: idem.Failed, Retention: 4 * retention,
				Response: idem.Response{
					Status: 422, Codec: "the codec", CodecVersion: 9, Body: []byte("the body"),
					Error: &idem.ErrorValue{Code: "the code", Message: "the message"},
				},
			})
			return err
		}, row{
			"status": "failed", "completed_at": 0.0, "expires_at": ms(4 * retention), "response_status": 422.0,
			"response_codec": "the codec", "response_codec_version": 9.0, "response_body": "the body",
			"error_code": "the code", "error_message": "the message",
			"lease_expires_at": nil, // it stays, so its offset is another one
		}},
		{"take-over of the expired", func() error {
			expire(t, pool)
			again := claim
			again.Token, again.ExecutionID, again.Replace = idem.ID{0xa4}, idem.ID{0xe4}, seen()
			_, err := store.Claim(ctx, again)
			return err
		}, merge(unanswered, row{
			"status": "processing", "token": tokenSum(idem.ID{0xa4}), "execution_id": idem.ID{0xe4}.String(), "attempt": 4.0,
			"reclaimed": false, "inserted_at": true, "lease_expires_at": ms(lease), "expires_at": ms(lease + retention),
		})},
		{"complete", func() error {
			_, err := store.Complete(ctx, idem.CompleteRequest{
				Key: key, Token: idem.ID{0xa4}, State: idem.Succeeded, Retention: retention,
				Response: idem.Response{Status: 201, Codec: "json", CodecVersion: 1, Body: []byte{}},
			})
			return err
		}, row{
			"status": "succeeded", "inserted_at": false, "completed_at": 0.0, "expires_at": ms(retention), "response_status": 201.0,
			"response_codec": "json", "response_codec_version": 1.0, "response_body": "", "lease_expires_at": nil,
		}},
	} {
		wantErr(t, step.do(), nil)
		want = merge(want, step.changes)
		got := readRow(t, pool)
		if _, stays := step.changes["lease_expires_at"]; stays && step.changes["lease_expires_at"] == nil {
			got["lease_expires_at"] = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.name, diff)
		}
	}
	expire(t, pool)
	if res, err := store.Purge(ctx, idem.PurgeRequest{Limit: 1}); err != nil || res.Deleted != 1 || count(t, pool) != 0 {
		t.Errorf("purge: %+v, %v; %d rows are left", res, err, count(t, pool))
	}
}

func ms(d time.Duration) float64 { return float64(d.Milliseconds()) }

func merge(rows ...row) row {
	all := row{}
	for _, r := range rows {
		for column, v := range r {
			all[column] = v
		}
	}
	return all
}

// What Do itself writes: the columns that come from its caller and its options.
func TestB55WhatDoWrites(t *testing.T) {
	t.Parallel()
	pool := open(t)
	refused := publicError("out of stock")
	_, err := idem.Do(watchdog(t), pg.New(pool), idem.Key{User: idem.NoUser, Scope: " s ", Key: " k "}, "payload",
		func(context.Context) (map[string]int, idem.Status, error) {
			return map[string]int{"left": 0}, 409, refused
		},
		idem.WithErrors(map[string]error{"out_of_stock": refused}), idem.WithRetention(time.Hour))
	wantErr(t, err, refused)
	hash, err := idem.PayloadHash("payload")
	wantErr(t, err, nil)
	got := readRow(t, pool)
	for _, random := range []string{"token", "execution_id", "lease_expires_at"} {
		delete(got, random)
	}
	want := row{
		"user_id": "", "scope": "s", "idempotency_key": "k", "request_hash": hash, "hash_version": 1.0, "status": "failed",
		"attempt": 1.0, "reclaimed": false, "expires_at": ms(time.Hour), "purge_after": ms(time.Hour), "inserted_at": false,
		"updated_at": true, "completed_at": 0.0, "response_status": 409.0, "response_codec": "json",
		"response_codec_version": 1.0, "response_body": `{"left":0}`, "error_code": "out_of_stock", "error_message": "out of stock",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
}
