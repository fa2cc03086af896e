#!/usr/bin/env bash
# Checks the specifications in the folder spec with TLC: the right protocol holds, every
# action of it was taken, and every mutation breaks the invariant that is named here.
# JOBS is how many runs go on at a time, 2 by default. ONLY=WORD chooses runs.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/packages.sh
need default-jdk-headless javac
need maven mvn
install_needed "the specifications" "make spec"

# The configuration, the mutation, and the invariant that it breaks.
runs='
Lock          none                                    -
LockRenew     none                                    -
LockHandOver  none                                    -
LockFence     none                                    -
LockLive      none                                    -
Quorum        none                                    -
QuorumTokens  none                                    -
Lock          no margin                               OneHolder
Lock          trust counted from the answer           OneHolder
Lock          expiry by the clients'"'"' clocks           OneHolder
LockRenew     release by name                         TrustedIsHeld
LockRenew     late renewal shortens                   TrustedIsHeld
LockRenew     late renewal takes the lock             TrustedIsHeld
LockRenew     late answer revives the hold            TrustedIsHeld
Lock          tokens start again                      TokensRise
LockHandOver  span overlaps the next grant            TokensRise
LockHandOver  the owner asks again after a hand-over  TokensRise
LockHandOver  hand-over renews the trust              OneHolder
LockFence     no fence                                NeverBack
LockLive      no expiry                               Served
LockLive      a lost hold keeps the slot              Served
Quorum        no delayed restart                      OneHolder
Quorum        half is enough                          OneHolder
Quorum        trust counted from the last vote        OneHolder
QuorumTokens  token is not written back               TokensRise
'

cache=$PWD/.cache/spec
mkdir -p "$cache"
if [ ! -s "$cache/classpath" ] || [ ! -e "$(cat "$cache/classpath")" ]; then
	echo "spec: fetching TLC"
	mvn --batch-mode --quiet --file spec/pom.xml dependency:build-classpath -Dmdep.outputFile="$cache/classpath"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NUMBER CONFIGURATION MUTATION INVARIANT runs TLC once, prints one line, and leaves
# NUMBER.log and, if the outcome is the right one, NUMBER.ok in $work.
check() {
	local number=$1 config=$2 mutation=$3 invariant=$4
	local module=Quorum dir=$work/$number outcome options=() start=$SECONDS
	local log=$work/$number.log
	[[ $config == Lock* ]] && module=Lock
	mkdir -p "$dir/tmp" "$dir/states"
	cp "spec/$module.tla" "$dir"
	sed "s|^  Mutation = .*|  Mutation = \"$mutation\"|" "spec/$config.cfg" >"$dir/$module.cfg"
	if [ "$invariant" = - ]; then
		options=(-coverage 60 -lncheck final)
	elif [ "$invariant" != Served ]; then
		sed -i "s|^INVARIANTS .*|INVARIANTS $invariant|" "$dir/$module.cfg"
	fi
	# TLC writes its library to the temporary folder, which runs must not share.
	(cd "$dir" && java -XX:+UseSerialGC -Xmx2g -Djava.io.tmpdir="$dir/tmp" -cp "$(cat "$cache/classpath")" tlc2.TLC \
		-workers 1 -metadir "$dir/states" -nowarning "${options[@]}" "$module") >"$log" 2>&1 || true
	local states
	states=$(sed -n 's/^\([0-9]*\) states generated, \([0-9]*\) distinct.*/\2/p' "$log" | tail -1)
	local steps
	steps=$(grep -c '^State [0-9]*:' "$log" || true)
	if grep -q '^Model checking completed. No error has been found' "$log"; then
		outcome="holds in $states states"
		[ "$invariant" != - ] || touch "$work/$number.ok"
	elif grep -q '^Error: Temporal properties were violated' "$log"; then
		outcome="breaks Served, shown in $steps steps"
		[ "$invariant" != Served ] || touch "$work/$number.ok"
	elif grep -q '^Error: Invariant .* is violated' "$log"; then
		local broken
		broken=$(sed -n 's/^Error: Invariant \(.*\) is violated.*/\1/p' "$log" | head -1)
		outcome="breaks $broken, shown in $steps steps"
		[ "$broken" != "$invariant" ] || touch "$work/$number.ok"
	else
		outcome="TLC failed: $(grep -m1 -A1 Error "$log" | tr '\n' ' ')"
	fi
	local verdict=ok
	[ -e "$work/$number.ok" ] || verdict=FAILED
	[ "$mutation" != none ] || mutation='(the right protocol)'
	printf '%-6s  %-12s  %-38s  %s (%d s)\n' "$verdict" "$config" "$mutation" "$outcome" $((SECONDS - start))
}

# covered MODULE prints how often each action of the right protocol was taken, and fails if one was not.
covered() {
	local module=$1 number
	shift
	for number in "$@"; do cat "$work/$number.log"; done |
		sed -n "s/^<\([A-Z][A-Za-z]*\) line .* of module $module[^>]*>: \([0-9]*\):\([0-9]*\)$/\1 \3/p" |
		awk -v module="$module" '
			$1 != "Init" && !seen[$1]++ { order[++n] = $1 }
			{ taken[$1] += $2 }
			END {
				for (i = 1; i <= n; i++) {
					text = text " " order[i] " " taken[order[i]]
					if (!taken[order[i]]) { bad = 1; text = text " (NEVER)" }
				}
				if (!n) { bad = 1; text = " nothing is known" }
				print "taken by " module ":" text
				exit bad
			}'
}

number=0
lock=() quorum=() failed=0
while IFS= read -r line; do
	[[ -n $line && $line == *"${ONLY-}"* ]] || continue
	number=$((number + 1))
	config=${line%% *} invariant=${line##* }
	mutation=$(sed 's/^[^ ]* *//; s/ *[^ ]*$//' <<<"$line")
	if [ "$mutation" = none ]; then
		if [[ $config == Lock* ]]; then lock+=("$number"); else quorum+=("$number"); fi
	fi
	while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n; done
	check "$number" "$config" "$mutation" "$invariant" &
done <<<"$runs"
wait

[ ${#lock[@]} -lt 5 ] || covered Lock "${lock[@]}" || failed=1
[ ${#quorum[@]} -lt 2 ] || covered Quorum "${quorum[@]}" || failed=1
good=$(find "$work" -name '*.ok' | wc -l)
if [ "$good" -lt "$number" ] || [ "$failed" -ne 0 ] || [ "$number" -eq 0 ]; then
	echo "spec: $((number - good)) of $number runs failed" >&2
	exit 1
fi
echo "spec: $number runs, all as expected, in $SECONDS s"
