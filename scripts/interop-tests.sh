#!/usr/bin/env bash
# interop-tests.sh PATTERN
# Runs the Go tests of the interoperation suites whose names match, and shows
# what they measured. It is an error if there is none.
set -euo pipefail
cd "$(dirname "$0")/../test"

export GOWORK=off GOFLAGS="${GOFLAGS:-} -buildvcs=false"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test -tags interop -count=1 -timeout 4m -v -run "$1" ./interop 2>&1 | tee "$log" | grep -vE '^=== '
if grep -q 'no tests to run' "$log"; then
	echo "interop: there is no test $1" >&2
	exit 1
fi
