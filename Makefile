SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GOLANGCI_LINT_VERSION := v2.14.0
GOVULNCHECK_VERSION   := v1.8.0

# The oldest Go that works. go.mod of every module says the same.
OLDEST_GO := $(shell sed -n 's/^go //p' go.mod)

# How long each case of the benchmarks and each fuzz test runs.
BENCHTIME ?= 3s
FUZZTIME  ?= 20s

each := scripts/each-module.sh

# A checkout whose owner is somebody else, as in containers, has no readable
# version; nothing in the tests needs it.
test lint fuzz release dist: export GOFLAGS += -buildvcs=false
# What is compiled does not depend on folders. So test/release, which installs a release from a
# module cache of its own, compiles no package of others again.
test: export GOFLAGS += -trimpath

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.PHONY: build
build: ## build the command line into bin/dlock, static and stripped as in a release; TAGS=noetcd,nosqlite
	cd cmd/dlock && CGO_ENABLED=0 go build -trimpath -tags grpcnotrace,$(TAGS) -ldflags '-s -w' -o ../../bin/dlock .

.PHONY: check
check: ## what to run before each commit: format, vet, core, kit on SQLite and Redis; less than two minutes; needs redis-server
	scripts/check.sh

# -race in the root module only, where the concurrency is: the tests with servers take long
# enough without it, and compiling what the stores depend on twice would take minutes. And
# -count=1, because the go command does not see what a test depends on outside its module:
# servers, and the other modules.
.PHONY: test
test: servers ## install what is missing, then check and test every module (as root on Debian: nothing else to do); STORE=redis
ifdef STORE
	scripts/test-store.sh $(STORE)
else
	scripts/check-format.sh
	$(each) go mod download
	$(each) go mod tidy -diff
	$(each) go vet ./...
	GOOS=windows go vet ./...
	$(each) "$(CURDIR)/scripts/test-module.sh"
	go test -count=1 -run 'TestSimulation|TakeTurns|DoNotStarve$$|AllocatesOnce' . # those that the race detector makes too slow
	go run ./test/bench --only memory/solo,sqlite/handover,postgres/handover --time 20ms
endif

.PHONY: race
race: servers ## everything with the race detector, which takes 40 minutes on two cores
	$(each) go test -race -count=1 -p 1 -timeout 20m ./...

.PHONY: oldest
oldest: ## compile everything with the oldest Go that go.mod allows, and test the core with it
	GOTOOLCHAIN=go$(OLDEST_GO) $(each) go vet ./...
	GOTOOLCHAIN=go$(OLDEST_GO) go test -count=1 .

.PHONY: interop
interop: ## test together with clients in Java and Python (as root on Debian: nothing else to do)
	scripts/interop.sh

.PHONY: servers
servers: ## install the servers that the tests start, from Debian's packages
	scripts/install-servers.sh

.PHONY: lint
lint: ## golangci-lint and govulncheck
	$(each) go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION) run --config "$(CURDIR)/.golangci.yml" ./...
	$(each) "$(CURDIR)/scripts/check-vulnerabilities.sh" $(GOVULNCHECK_VERSION)

.PHONY: bench
bench: ## the benchmarks; BENCHTIME=3s, ONLY=memory,sqlite, JSON=FILE, HTML=FILE, GROWTH=1
	go run ./test/bench --time $(BENCHTIME) $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON)) $(if $(HTML),--html $(HTML)) $(if $(GROWTH),--growth)

.PHONY: lab
lab: servers ## play the stories of how locks fail (10 min; three need root; go run ./lab NAME plays one); STORY=NAME, STORES=redis,etcd, HTML=lab.html
	go run ./lab $(or $(STORY),all) $(if $(STORES),--store $(STORES)) --html $(or $(HTML),lab.html)

.PHONY: soak
soak: servers ## lock on every store while faults happen at random, and check all of it; TIME=10m, STORES=redis,etcd or all, SEED=N, SAVE=FILE
	go run ./lab soak --store $(or $(STORES),all) --time $(or $(TIME),10m) $(if $(SEED),--seed $(SEED)) $(if $(SAVE),--save $(SAVE))

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME=20s
	$(each) "$(CURDIR)/scripts/fuzz.sh" $(FUZZTIME)

.PHONY: mutants
mutants: servers ## break each rule of the design in a copy, and see a test fail (up to 20 minutes on two cores); ONLY=redislock
	go run -buildvcs=false ./test/mutants $(if $(ONLY),--only $(ONLY))

.PHONY: release
release: ## VERSION=v0.1.0: say what a release would do; DO=1: make its commits and tags in this clone (no push)
	go run ./test/release --version "$(VERSION)" $(if $(DO),--do) $(if $(CHECK),--check "$(CHECK)")

.PHONY: dist
dist: ## VERSION=v0.1.0: build the archives and packages of a tagged release, each program twice, into dist/
	go run ./test/release --version "$(VERSION)" --dist dist $(if $(PLATFORMS),--platforms $(PLATFORMS))

.PHONY: spec
spec: ## check the specifications in spec with TLC, in three minutes (as root on Debian: nothing else to do); ONLY=WORDS
	ONLY="$(ONLY)" scripts/spec.sh

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
