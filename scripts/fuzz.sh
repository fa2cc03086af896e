#!/usr/bin/env bash
# fuzz.sh DURATION
# Runs every fuzz test of the current module for that long.
set -euo pipefail

go list ./... | while read -r package; do
	{ go test -list '^Fuzz' "$package" | grep '^Fuzz' || true; } | while read -r name; do
		echo "$package $name"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" "$package" </dev/null
	done
done
