#!/usr/bin/env bash
# each-module.sh COMMAND [ARG...]
# Runs a command in the folder of every Go module here, without the workspace:
# each module has to work as it does for those who import it.
set -euo pipefail
cd "$(dirname "$0")/.."

export GOWORK=off
find . -name go.mod -not -path '*/.*' -not -path '*/testdata/*' -printf '%h\n' | sort | while read -r folder; do
	echo "== $folder: $*"
	(cd "$folder" && "$@") </dev/null
done
