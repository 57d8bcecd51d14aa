module github.com/idem-go/idem/bench

go 1.26

require (
	github.com/idem-go/idem v0.1.0
	github.com/idem-go/idem/pg/pgtest v0.1.0
	github.com/jackc/pgx/v5 v5.13.0
)

replace (
	github.com/idem-go/idem => ..
	github.com/idem-go/idem/pg/pgtest => ../pg/pgtest
)
