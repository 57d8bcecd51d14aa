package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem"
)

// How many statements of a kind may be under way before callers share them, and
// how many callers may share one. Measured, see docs/performance.md.
const (
	claimLeaders    = 2
	completeLeaders = 2
	mostCombined    = 128
)

// claimed is the answer to one claim of several. It is not valid if the
// statement found nothing to say, for example because a rival was under way.
type claimed struct {
	rec   idem.Record
	valid bool
}

// completed is the answer to one completion of several. It is not valid if the
// token did not hold a claim.
type completed struct {
	at    time.Time
	valid bool
}

func (s *Store) combine() {
	s.claims = &combiner[idem.ClaimRequest, claimed]{
		leaders: claimLeaders, most: mostCombined,
		one: func(ctx context.Context, req idem.ClaimRequest) (claimed, error) {
			rec, err := s.claimOne(ctx, req)
			return claimed{rec, true}, err
		},
		many: s.claimMany,
		forsaken: func(req idem.ClaimRequest, c claimed) {
			if c.valid && c.rec.Token == req.Token {
				ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
				defer cancel()
				_ = s.Release(ctx, idem.ReleaseRequest{Key: req.Key, Token: req.Token, Retention: req.Retention})
			}
		},
	}
	s.completions = &combiner[idem.CompleteRequest, completed]{
		leaders: completeLeaders, most: mostCombined,
		one: func(ctx context.Context, req idem.CompleteRequest) (completed, error) {
			at, err := s.completeOne(ctx, req)
			return completed{at, true}, err
		},
		many:     s.completeMany,
		forsaken: func(idem.CompleteRequest, completed) {},
	}
}

// claimMany claims for several callers. Those of one key share one row: the
// first one's claim, if it wins, is the record that stands in the others' way.
func (s *Store) claimMany(ctx context.Context, reqs []idem.ClaimRequest) ([]claimed, error) {
	var (
		keys                        keyColumns
		hashes, tokens, executions  []string
		versions                    []int32
		reclaimed                   []bool
		leases, retentions, digests []int64
		row                         = make([]int, len(reqs)) // of the statement, for each request
		rowOf                       = make(map[idem.Key]int, len(reqs))
		byToken                     = make(map[idem.ID]int, len(reqs))
	)
	for i, req := range reqs {
		n, ok := rowOf[req.Key]
		if !ok {
			n = len(rowOf)
			rowOf[req.Key], byToken[req.Token] = n, i
			keys.add(req.Key)
			hashes, versions = append(hashes, req.Hash.Sum), append(versions, int32(req.Hash.Version))
			tokens, executions = append(tokens, req.Token.String()), append(executions, req.ExecutionID.String())
			reclaimed = append(reclaimed, req.Reclaimed)
			leases, retentions = append(leases, microseconds(req.Lease)), append(retentions, microseconds(req.Retention))
			digests = append(digests, digest(req.Key))
		}
		row[i] = n
	}
	answers := make([]claimed, len(rowOf))
	var a answer
	rows, _ := s.db.Query(ctx, s.sql.claimMany, keys.users, keys.scopes, keys.keys, hashes, versions, tokens,
		executions, reclaimed, leases, retentions, digests)
	err := forEach(rows, func(rows pgx.Rows) error {
		if err := rows.Scan(&a); err != nil {
			return err
		}
		if a.made {
			i := byToken[a.by.Bytes]
			answers[row[i]] = claimed{a.to(&reqs[i]), true}
		} else {
			answers[a.n-1] = claimed{a.rec, true}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	results := make([]claimed, len(reqs))
	for i := range reqs {
		results[i] = answers[row[i]]
	}
	return results, nil
}

func (s *Store) completeMany(ctx context.Context, reqs []idem.CompleteRequest) ([]completed, error) {
	var (
		keys                    keyColumns
		tokens, states          []string
		retentions              []int64
		statuses                []pgtype.Int2
		codecs, codes, messages []pgtype.Text
		versions                []pgtype.Int4
		bodies                  [][]byte
		byToken                 = make(map[idem.ID]int, len(reqs))
	)
	for i, req := range reqs {
		byToken[req.Token] = i
		r := columnsOf(req.Response)
		keys.add(req.Key)
		tokens, states = append(tokens, req.Token.String()), append(states, string(req.State))
		retentions, statuses = append(retentions, microseconds(req.Retention)), append(statuses, r.status)
		codecs, versions, bodies = append(codecs, r.codec), append(versions, r.codecVersion), append(bodies, r.body)
		codes, messages = append(codes, r.code), append(messages, r.message)
	}
	results := make([]completed, len(reqs))
	rows, _ := s.db.Query(ctx, s.sql.completeMany, keys.users, keys.scopes, keys.keys, tokens, states, retentions,
		statuses, codecs, versions, bodies, codes, messages)
	err := forEach(rows, func(rows pgx.Rows) error {
		var token pgtype.UUID
		var at time.Time
		if err := rows.Scan(&token, &at); err != nil {
			return err
		}
		results[byToken[token.Bytes]] = completed{at, true}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func forEach(rows pgx.Rows, f func(pgx.Rows) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

type keyColumns struct{ users, scopes, keys []string }

func (c *keyColumns) add(k idem.Key) {
	c.users, c.scopes, c.keys = append(c.users, k.User), append(c.scopes, k.Scope), append(c.keys, k.Key)
}
