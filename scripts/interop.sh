#!/usr/bin/env bash
# Runs the interoperation suites: dlock and clients in other languages that share
# a lock. A suite is an executable test/interop/NAME/run that does its own set-up.
set -euo pipefail
cd "$(dirname "$0")/.."

shopt -s nullglob
suites=(test/interop/*/run)
if [ ${#suites[@]} -eq 0 ]; then
	echo "interop: there is no suite, so nothing was tested" >&2
	exit 1
fi
for suite in "${suites[@]}"; do
	echo "== $suite"
	"$suite"
done
echo "interop: ${#suites[@]} suites passed"
