module github.com/idem-go/idem/idemnats

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/idem-go/idem v0.1.0
	github.com/nats-io/nats.go v1.55.0
)

require (
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/klauspost/compress v1.20.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/idem-go/idem => ..
