#!/usr/bin/env bash
# Tests the module of the current folder, with the race detector unless it is one of
# those that start servers and processes.
set -euo pipefail

race=-race
case $(go list -m) in
*/cmd/dlock | */test) race= ;;
esac
exec go test $race -count=1 -p 1 -timeout 10m ./...
