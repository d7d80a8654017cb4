#!/usr/bin/env bash
# Runs every fuzz target of the module with a number of inputs (10000x) instead of a duration,
# because after a duration go test may fail with "context deadline exceeded" on a busy machine.
set -euo pipefail
cd "$(dirname "$0")/.."
inputs=${1:-10000x}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

targets=$(git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' ':!test/e2e' | sed 's/func //')
[ -n "$targets" ] || { echo "no fuzz targets found" >&2; exit 1; }
for target in $targets; do
	package=./$(dirname "${target%%:*}")
	name=${target##*:}
	echo "fuzz $package $name $inputs"
	go test -tags grpcnotrace -run '^$' -fuzz "^$name\$" -fuzztime "$inputs" "$package" >"$log" 2>&1 </dev/null || { cat "$log"; exit 1; }
done
