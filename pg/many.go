package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// mostCombined is how many callers may share one statement.
const mostCombined = 128

// paceOf lets two statements of a kind be under way in any case, and at most as
// many as there may be connections.
func paceOf(db DB) *pace {
	most := 16
	if pool, ok := db.(interface{ Stat() *pgxpool.Stat }); ok {
		most = int(pool.Stat().MaxConns())
	}
	return newPace(2, most)
}

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
	pace := paceOf(s.db)
	s.claims = &combiner[idem.ClaimRequest, claimed]{
		pace: pace, most: mostCombined,
		one: func(ctx context.Context, req idem.ClaimRequest) (claimed, error) {
			rec, err := s.claimOne(ctx, req)
			return claimed{rec, true}, err
		},
		many:    s.claimMany,
		teaches: func(req idem.ClaimRequest, c claimed) bool { return c.valid && c.rec.Token != req.Token },
		forsaken: func(req idem.ClaimRequest, c claimed) {
			if c.valid && c.rec.Token == req.Token {
				ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
				defer cancel()
				_ = s.Release(ctx, idem.ReleaseRequest{Key: req.Key, Token: req.Token, Retention: req.Retention})
			}
		},
	}
	s.completions = &combiner[idem.CompleteRequest, completed]{
		pace: pace, most: mostCombined,
		one: func(ctx context.Context, req idem.CompleteRequest) (completed, error) {
			at, err := s.completeOne(ctx, req)
			return completed{at, true}, err
		},
		many:     s.completeMany,
		teaches:  func(idem.CompleteRequest, completed) bool { return false },
		forsaken: func(idem.CompleteRequest, completed) {},
	}
}

// claimMany claims for several callers. Those of one key share one row: the
// first one's claim, if it wins, is the record that stands in the others' way.
func (s *Store) claimMany(ctx context.Context, reqs []idem.ClaimRequest) ([]claimed, error) {
	var (
		sent    = make([]int, 0, len(reqs)) // the request of each row
		first   = make([]int, len(reqs))    // the one that is sent, for each request
		byKey   = make(map[idem.Key]int, len(reqs))
		byToken = make(map[idem.ID]int, len(reqs))
	)
	for i, req := range reqs {
		n, ok := byKey[req.Key]
		if !ok {
			n = i
			sent, byKey[req.Key], byToken[req.Token] = append(sent, i), i, i
		}
		first[i] = n
	}
	results := make([]claimed, len(reqs))
	var a answer
	rows, _ := s.db.Query(ctx, s.sql.claimMany,
		column(sent, func(i int) string { return reqs[i].Key.User }),
		column(sent, func(i int) string { return reqs[i].Key.Scope }),
		column(sent, func(i int) string { return reqs[i].Key.Key }),
		column(sent, func(i int) string { return reqs[i].Hash.Sum }),
		column(sent, func(i int) int32 { return int32(reqs[i].Hash.Version) }),
		column(sent, func(i int) pgtype.UUID { return uuid(reqs[i].Token) }),
		column(sent, func(i int) pgtype.UUID { return uuid(reqs[i].ExecutionID) }),
		column(sent, func(i int) bool { return reqs[i].Reclaimed }),
		column(sent, func(i int) int64 { return microseconds(reqs[i].Lease) }),
		column(sent, func(i int) int64 { return microseconds(reqs[i].Retention) }),
		column(sent, func(i int) int64 { return digest(reqs[i].Key) }))
	err := forEach(rows, func(rows pgx.Rows) error {
		if err := rows.Scan(&a); err != nil {
			return err
		}
		if a.made {
			i := byToken[a.by.Bytes]
			results[i] = claimed{a.to(&reqs[i]), true}
		} else {
			results[sent[a.n-1]] = claimed{a.rec, true}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range reqs {
		results[i] = results[first[i]]
	}
	return results, nil
}

func (s *Store) completeMany(ctx context.Context, reqs []idem.CompleteRequest) ([]completed, error) {
	byToken := make(map[idem.ID]int, len(reqs))
	for i, req := range reqs {
		byToken[req.Token] = i
	}
	responses := column(reqs, func(r idem.CompleteRequest) responseColumns { return columnsOf(r.Response) })
	results := make([]completed, len(reqs))
	rows, _ := s.db.Query(ctx, s.sql.completeMany,
		column(reqs, func(r idem.CompleteRequest) string { return r.Key.User }),
		column(reqs, func(r idem.CompleteRequest) string { return r.Key.Scope }),
		column(reqs, func(r idem.CompleteRequest) string { return r.Key.Key }),
		column(reqs, func(r idem.CompleteRequest) pgtype.UUID { return uuid(r.Token) }),
		column(reqs, func(r idem.CompleteRequest) string { return string(r.State) }),
		column(reqs, func(r idem.CompleteRequest) int64 { return microseconds(r.Retention) }),
		column(responses, func(r responseColumns) pgtype.Int2 { return r.status }),
		column(responses, func(r responseColumns) pgtype.Text { return r.codec }),
		column(responses, func(r responseColumns) pgtype.Int4 { return r.codecVersion }),
		column(responses, func(r responseColumns) []byte { return r.body }),
		column(responses, func(r responseColumns) pgtype.Text { return r.code }),
		column(responses, func(r responseColumns) pgtype.Text { return r.message }))
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

// column is one argument of a statement for several requests.
func column[Req, T any](reqs []Req, of func(Req) T) []T {
	values := make([]T, len(reqs))
	for i, req := range reqs {
		values[i] = of(req)
	}
	return values
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
