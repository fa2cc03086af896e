#!/usr/bin/env bash
# Fails if a Go file is not formatted as gofmt formats it, and names it.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(gofmt -s -l .)
if [ -n "$unformatted" ]; then
	printf 'not formatted; run gofmt -s -w on:\n%s\n' "$unformatted" >&2
	exit 1
fi
