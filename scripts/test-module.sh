#!/usr/bin/env bash
# Tests the module of the current folder. Only the root module, where the concurrency is, is
# tested with the race detector: for the others it would compile all that they depend on once
# more. In the module test the packages that keep all cores busy come one at a time.
set -euo pipefail

scripts=$(dirname "$0")
run() { "$scripts/go-test.sh" -count=1 -timeout 20m "$@"; }
case $(go list -m) in
*/test)
	failed=0
	named='/stores/(redis|sqlservers|sqlsession|zookeeper|etcd)$|/release$'
	mapfile -t others < <(go list ./... | grep -Ev "$named")
	run -p 2 -parallel 3 ./stores/zookeeper ./stores/etcd "${others[@]}" || failed=1 # the longest first
	of_database() { run -parallel 2 -run "^Test/^$1\$|^Example_$1\$" ./stores/sqlservers; }
	of_database mariadb &
	mariadb=$!
	of_database postgres || failed=1
	wait "$mariadb" || failed=1
	run -parallel 5 ./stores/sqlsession & # waits most of the time
	sqlsession=$!
	run ./release || failed=1 # compiles
	run -parallel 4 ./stores/redis || failed=1
	wait "$sqlsession" || failed=1
	exit "$failed"
	;;
*/lab) run -p 2 -parallel 3 ./... ;; # most of the time the soak waits
*/cmd/dlock) run -p 1 -parallel 4 ./... ;; # they wait most of the time
*/dlock) run -race -p 2 ./... ;;
*) run -p 2 ./... ;;
esac
