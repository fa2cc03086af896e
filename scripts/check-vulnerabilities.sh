#!/usr/bin/env bash
# check-vulnerabilities.sh VERSION
# Runs govulncheck in the current module. A vulnerability fails. A database that
# cannot be reached does not, since nothing is known to be wrong then, but the
# last lines say that nothing was checked.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if go run "golang.org/x/vuln/cmd/govulncheck@$1" ./... >"$log" 2>&1; then
	cat "$log"
	exit 0
fi
cat "$log"
if grep -q 'fetching vulnerabilities' "$log"; then
	echo "NOT CHECKED: the vulnerability database cannot be reached from here, so known" >&2
	echo "NOT CHECKED: vulnerabilities were not looked for. GOVULNDB can name a mirror." >&2
	exit 0
fi
exit 1
