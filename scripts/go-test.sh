#!/usr/bin/env bash
# go-test.sh ARG...
# Runs go test ARG... A virtual machine whose host gives its processors to others misses the
# time limits of tests, however generous. If the host took more than a tenth of their time
# while tests failed, each of these tests has to pass by itself, and the log says so. On any
# other machine a failure is a failure.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# taken_percent BEFORE AFTER compares two lines "cpu" of /proc/stat, of which the ninth word is
# the time that the host took.
taken_percent() {
	awk '{ for (i = 2; i <= 9; i++) sum[NR] += $i; taken[NR] = $9 }
		END { print int(100 * (taken[2] - taken[1]) / (sum[2] - sum[1] + 1)) }' <<<"$1"$'\n'"$2"
}
processors() { grep '^cpu ' /proc/stat 2>/dev/null || echo cpu; } # without it nothing was taken

before=$(processors)
go test "$@" 2>&1 | tee "$log" && exit
percent=$(taken_percent "$before" "$(processors)")
[ "$percent" -gt 10 ] || exit 1
grep -qE '^panic: |^fatal error: |\[(build|setup) failed\]|^WARNING: DATA RACE' "$log" && exit 1

# Lines "package test", without tests whose subtests failed.
mapfile -t failed < <(awk '
	/^ *--- FAIL: / { name[++n] = $3 }
	/^FAIL\t/ {
		for (i = 1; i <= n; i++) {
			leaf = 1
			for (k = 1; k <= n; k++) if (index(name[k], name[i] "/") == 1) leaf = 0
			if (leaf) print $2, name[i]
		}
		n = 0
	}' "$log")
[ ${#failed[@]} -gt 0 ] || exit 1
echo "== the host took $percent % of the processors; repeating what failed, each by itself:"
printf '==   %s\n' "${failed[@]}"

flags=() # without the packages and the choice of tests
skip=0
for arg in "$@"; do
	if [ "$skip" = 1 ]; then skip=0; continue; fi
	case $arg in
	-run | -skip | -p | -parallel) skip=1 ;;
	-timeout) flags+=("$arg") ;;
	./* | */*) ;;
	*) flags+=("$arg") ;;
	esac
done
status=0
for line in "${failed[@]}"; do
	# -run wants a pattern for each level of subtests.
	pattern=$(sed -E 's/[][().*+?{}|^$\\]/\\&/g; s,/,$/^,g; s/.*/^&$/' <<<"${line#* }")
	go test -v "${flags[@]}" -run "$pattern" "${line%% *}" >"$log" 2>&1 || true
	if grep -qF -- "--- PASS: ${line#* } (" "$log"; then
		echo "== passed by itself: $line"
	else
		cat "$log"
		status=1
	fi
done
exit "$status"
