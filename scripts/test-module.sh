#!/usr/bin/env bash
# Tests the module of the current folder. Those that start servers and processes are
# tested without the race detector, and in the module test the packages that keep
# all cores busy come one at a time.
set -euo pipefail

run() { go test -count=1 -timeout 10m "$@"; }
case $(go list -m) in
*/test)
	busy='/test/(bench|mysql|postgres|redis|servers|sqlbound|sqlite)$'
	mapfile -t others < <(go list ./... | grep -Ev "$busy")
	mapfile -t alone < <(go list ./... | grep -E "$busy")
	failed=0
	run -p 2 "${others[@]}" || failed=1
	run -p 1 "${alone[@]}" || failed=1
	exit "$failed"
	;;
*/cmd/dlock) run -p 1 ./... ;;
*) run -race -p 1 ./... ;;
esac
