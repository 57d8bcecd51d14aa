module github.com/idem-go/idem/idemcache

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/idem-go/idem v0.1.0
	github.com/maypok86/otter/v2 v2.4.0
)

require github.com/go-json-experiment/json v1.27.2 // indirect

replace github.com/idem-go/idem => ..
