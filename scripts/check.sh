#!/usr/bin/env bash
# What a developer runs before each commit, in less than two minutes on two cores: format, vet, the
# rules of the tree, the packages that need no server, and the conformance kit on SQLite and on one
# Redis. What has passed before and has not changed is not run again.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/check-format.sh
modules=()
for folder in $(go list -m -f '{{.Dir}}'); do
	modules+=("$folder/...")
done
go vet "${modules[@]}"
go test . ./driver/... ./drivertest/... ./internal/... ./memlock/... ./fence/... ./test/repo
go test -run '^TestConformance$' ./test/stores/sqlite
go test -run '^TestConformance$/^single$' ./test/stores/redis
