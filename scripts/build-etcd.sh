#!/usr/bin/env bash
# Builds etcd and etcdctl of the version that etcd.mod names, once, into the folder
# where test/harness/servers looks for them.
set -euo pipefail
cd "$(dirname "$0")/../test" # with the requirements of etcd.mod in the place of its own

if [ "$(id -u)" -eq 0 ]; then
	cache=/var/cache # where the servers' user can read it
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}
fi
folder=$cache/dlock-test/etcd
export GOWORK=off
mod=-modfile=../scripts/etcd.mod
version=$(go list "$mod" -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)
if "$folder/etcd" --version 2>/dev/null | grep -qxF "etcd Version: ${version#v}"; then
	echo "etcd: $version is built"
	exit 0
fi
echo "etcd: building $version, which takes some minutes"
mkdir -p "$folder"
new=$(mktemp -d "$folder/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
go build "$mod" -o "$new/" go.etcd.io/etcd/server/v3 go.etcd.io/etcd/etcdctl/v3
mv "$new/etcdctl" "$folder/etcdctl"
mv "$new/server" "$folder/etcd" # the last, since it tells that all is there
echo "etcd: done"
