#!/usr/bin/env bash
# Installs the servers that the tests run against, and the C compiler that Go's
# race detector needs, from Debian's packages, where they are missing. Nothing is
# configured and no service is started: the tests start their own processes on
# free ports in temporary folders.
set -euo pipefail

# What to look for, and the package that brings it.
missing=()
need() {
	local package=$1
	shift
	local pattern
	for pattern in "$@"; do
		if compgen -G "$pattern" >/dev/null || command -v "$pattern" >/dev/null; then
			return
		fi
	done
	missing+=("$package")
}
need gcc gcc
need libc6-dev /usr/include/stdlib.h
need redis-server redis-server
need memcached memcached
need mariadb-server-core mariadbd /usr/sbin/mariadbd
need mariadb-client-core mariadb
need postgresql '/usr/lib/postgresql/*/bin/postgres'
need postgresql-client psql

if [ ${#missing[@]} -eq 0 ]; then
	echo "servers: all installed"
	exit 0
fi
echo "servers: installing ${missing[*]}"

if ! command -v apt-get >/dev/null; then
	echo "servers: there is no apt-get here; install by hand: ${missing[*]}" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "servers: only root can install packages; run: sudo make servers" >&2
	exit 1
fi

# Debian's packages start their services. This file is how an administrator
# says no. Whatever was there before comes back, also after an interrupted run.
policy=/usr/sbin/policy-rc.d
saved=$policy.before-dlock
restore() {
	if [ -e "$saved" ]; then
		mv -f "$saved" "$policy"
	elif grep -qs 'dlock: no services' "$policy"; then
		rm -f "$policy"
	fi
}
restore
trap restore EXIT
trap 'exit 130' INT TERM HUP
if [ -e "$policy" ]; then
	mv "$policy" "$saved"
fi
printf '#!/bin/sh\n# dlock: no services while the test servers are installed\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -q -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
install=("${apt[@]}" install --no-install-recommends "${missing[@]}")
log=$(mktemp)
# The lists may be missing or old: they are fetched only if it does not work without.
if ! "${install[@]}" >"$log" 2>&1; then
	if ! { "${apt[@]}" update && "${install[@]}"; } >"$log" 2>&1; then
		cat "$log" >&2
		echo "servers: the installation failed; the log is above" >&2
		rm -f "$log"
		exit 1
	fi
fi
rm -f "$log"
echo "servers: done"
