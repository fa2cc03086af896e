#!/usr/bin/env bash
# build-java.sh NAME [VERSION]
# Builds the Java side test/interop/NAME for a version of the library of that name, or the
# one that its pom.xml names, and prints the folder with it. It needs a JDK and Maven.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
pom=test/interop/$name/pom.xml
version=${2:-$(sed -n "s|.*<$name.version>\(.*\)</.*|\1|p" "$pom")}

out=$PWD/.cache/interop/$name-$version
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! mvn --batch-mode --file "$pom" -D"$name.version=$version" -Dout="$out" \
	compile dependency:build-classpath -Dmdep.outputFile="$out/classpath" >"$log" 2>&1; then
	cat "$log" >&2
	exit 1
fi
echo "$out"
