module github.com/idem-go/idem/idemsqlite

go 1.26

require (
	github.com/google/go-cmp v0.7.0
	github.com/idem-go/idem v0.1.0
	modernc.org/sqlite v1.62.0
)

replace github.com/idem-go/idem => ..
