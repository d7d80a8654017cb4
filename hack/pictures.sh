#!/usr/bin/env bash
# Creates the pictures in docs/pictures: `generic-dp status` in a terminal, and the status page,
# in an emulated machine while a USB stick is unplugged and plugged in again. Needs root;
# installs QEMU and Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin/generic-dp out=docs/pictures
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

test/e2e/vm/deps.sh
if ! command -v chromium >/dev/null; then
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi

(cd test/e2e/vm && GENERIC_DP_FRAMES=$temp GENERIC_DP_BIN=$bin go test -count=1 -vet=off -run TestFrames .)
mkdir -p "$out"
go run ./hack/terminal <"$temp/frames" >"$out/replug.svg"
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,540 \
	--user-data-dir="$temp/browser" --screenshot="$out/page.png" "file://$temp/page.html" 2>/dev/null
for file in "$out"/*; do
	(($(stat -c %s "$file") < 150000)) || { echo "pictures: $file has $(stat -c %s "$file") bytes, want less than 150000" >&2; exit 1; }
done
