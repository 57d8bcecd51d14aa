module github.com/idem-go/idem/idemwatermill

go 1.26

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/google/go-cmp v0.7.0
	github.com/idem-go/idem v0.1.0
)

require (
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/sony/gobreaker v1.0.0 // indirect
)

replace github.com/idem-go/idem => ..
