# One command for each habit. All of them work from the root of a fresh clone.

MODULES := $(shell go list -m -f '{{.Dir}}')
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
APIDIFF := golang.org/x/exp/cmd/apidiff@latest
FUZZTIME ?= 30s

.PHONY: test race cases test-js test-browser lint generate fuzz bench tidy cover api

test: ## the tests of every module
	go test work

race: ## the same under the race detector, and those that need redis-server, pgbouncer, rabbitmq-server and node
	go test -race -tags services work

cases: ## the large literal sizes of the numbered cases
	IDEM_TEST_LARGE=1 go test -timeout 30m -run 'Test(B[0-9]+|Large|Store$$)' work

test-js: ## the JavaScript client, under Node
	node --test client/js/*.test.js

test-browser: ## the example's page, in headless Chromium
	cd examples/browsertest && GOWORK=off go test .

generate: ## the code of the protocol buffers; needs protoc and the plugins that the go:generate lines name
	cd idemgrpc && go generate ./...
	cd examples && go generate ./grpc/...

lint: ## vet and golangci-lint in every module
	go vet work
	@for dir in $(MODULES); do echo "lint $$dir"; (cd $$dir && go run $(LINT) run ./...) || exit 1; done

fuzz: ## every fuzz target for FUZZTIME, a duration or a count as 50000x
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read file; do \
		grep -o '^func Fuzz[A-Za-z0-9_]*' $$file | cut -d' ' -f2 | while read target; do \
			echo "fuzz $$file $$target"; \
			(cd $$(dirname $$file) && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .) || exit 1; \
		done || exit 1; \
	done

bench: ## the benchmarks of every package
	go test -run '^$$' -bench . work

tidy: ## go.mod and go.sum of every module, as they are outside the workspace
	@for dir in $(MODULES); do (cd $$dir && GOWORK=off go mod tidy) || exit 1; done

cover: ## statement coverage of the library by all tests
	go test -coverpkg=github.com/idem-go/idem/... -coverprofile=cover.out work
	go tool cover -func=cover.out | tail -n 1

api: ## what changed in the exported API since the last tag
	@tag=$$(git describe --tags --abbrev=0) && dir=$$(mktemp -d) && \
		git worktree add -q $$dir $$tag && \
		(cd $$dir && go run $(APIDIFF) -w $$dir/api . ) && go run $(APIDIFF) $$dir/api . ; \
		git worktree remove --force $$dir
