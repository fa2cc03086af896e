#!/usr/bin/env bash
# each-module.sh COMMAND [ARG...]
# Runs a command in the folder of every Go module here, without the workspace:
# each module has to work as it does for those who import it. A failure does not
# keep the other modules from being looked at.
set -euo pipefail
cd "$(dirname "$0")/.."

export GOWORK=off
mapfile -t folders < <(find . -name go.mod -not -path '*/.*' -printf '%h\n' | sort)
failed=()
for folder in "${folders[@]}"; do
	echo "== $folder: $*"
	(cd "$folder" && "$@") </dev/null || failed+=("$folder")
done
if [ ${#failed[@]} -gt 0 ]; then
	echo "== failed in ${failed[*]}: $*" >&2
	exit 1
fi
