#!/usr/bin/env bash
# fuzz.sh DURATION
# Runs every fuzz test of the current module for that long.
set -euo pipefail

go list -f '{{.Dir}}' ./... | while read -r folder; do
	# Looked for in the text, because asking the compiler takes minutes.
	{ grep -hoE '^func Fuzz\w+' "$folder"/*_test.go 2>/dev/null || true; } | while read -r _ name; do
		echo "$folder $name"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" "$folder" </dev/null
	done
done
