#!/usr/bin/env bash
# test-store.sh STORE
# Runs the tests that belong to one store: the unit tests of its packages, and those on
# real servers. STORE may be "others": all tests that belong to no store.
set -euo pipefail
cd "$(dirname "$0")/.."

database='' # whose tests of those of all SQL servers are to run
case ${1:?usage: scripts/test-store.sh STORE} in
memory) packages=(./memlock ./drivertest) ;;
redis) packages=(./redislock/... ./test/stores/redis) ;;
etcd) packages=(./etcdlock/... ./test/stores/etcd) ;;
zookeeper) packages=(./zklock/... ./test/stores/zookeeper) ;;
memcached) packages=(./memcachelock/... ./test/stores/memcached) ;;
sqlite) packages=(./internal/sqldb/... ./sqllock/... ./test/stores/sqlite) ;;
mysql) packages=(./internal/sqldb/... ./sqllock/...) database=mariadb ;;
postgres) packages=(./internal/sqldb/... ./sqllock/...) database=postgres ;;
session) packages=(./internal/sqldb/... ./sqlsession/... ./test/stores/sqlsession) ;;
others) mapfile -t packages < <(go list ./... ./cmd/dlock/... ./test/... | grep -v /test/stores/) ;;
*)
	echo "unknown store \"$1\" (want memory, redis, etcd, zookeeper, memcached, sqlite, mysql, postgres, session or others)" >&2
	exit 64
	;;
esac
run() { go test -count=1 -p 1 -timeout 15m "$@"; }
run "${packages[@]}"
if [[ $database ]]; then
	run -run "^Test/^$database\$|^Example_$database\$" ./test/stores/sqlservers
fi
