#!/usr/bin/env bash
# Tests the module of the current folder. Those that start servers and processes are
# tested without the race detector, and in the module test the packages that keep
# all cores busy come one at a time.
set -euo pipefail

run() { go test -count=1 -timeout 10m "$@"; }
case $(go list -m) in
*/test)
	failed=0
	named='/stores/(redis|sqlservers|sqlsession|zookeeper|etcd)$|/release$'
	mapfile -t others < <(go list ./... | grep -Ev "$named")
	run -p 2 -parallel 3 ./stores/zookeeper ./stores/etcd "${others[@]}" || failed=1 # the longest first
	for database in mariadb postgres; do
		run -parallel 3 -run "^Test/^$database\$|^Example_$database\$" ./stores/sqlservers || failed=1
	done
	run -timeout 15m -p 2 -parallel 5 ./stores/sqlsession ./release || failed=1 # the first waits most of the time, the second compiles
	run -parallel 4 ./stores/redis || failed=1
	exit "$failed"
	;;
*/cmd/dlock) run -p 1 ./... ;;
*) run -race -p 2 ./... ;;
esac
