#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each (5s).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-5s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

git grep -hoE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' >/dev/null || { echo "no fuzz targets found" >&2; exit 1; }
git grep -lE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' ':!test/e2e' | while read -r file; do
	package=./$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | awk '{ print $2 }' | while read -r target; do
		echo "fuzz $package $target $time"
		go test -tags grpcnotrace -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" >"$log" 2>&1 </dev/null || { cat "$log"; exit 1; }
	done
done
