#!/usr/bin/env bash
# Installs the servers that the tests run against, and the C compiler that Go's
# race detector needs, from Debian's packages, where they are missing, and builds the
# one that Debian has only in an old version. Nothing is configured and no service is
# started: the tests start their own processes on free ports in temporary folders.
set -euo pipefail
. "$(dirname "$0")/packages.sh"

# What to look for, and the package that brings it.
need gcc gcc
need libc6-dev /usr/include/stdlib.h
need redis-server redis-server
need memcached memcached
need mariadb-server-core mariadbd /usr/sbin/mariadbd
need mariadb-client-core mariadb
need postgresql '/usr/lib/postgresql/*/bin/postgres'
need postgresql-client psql
need pgbouncer pgbouncer /usr/sbin/pgbouncer
need default-jre-headless java
need zookeeper /usr/share/java/zookeeper.jar
need etcd-server etcd
need etcd-client etcdctl
need nginx nginx /usr/sbin/nginx
need faketime '/usr/lib/*/faketime/libfaketime.so.1'

install_needed servers "make servers"
"$(dirname "$0")/build-etcd.sh"
