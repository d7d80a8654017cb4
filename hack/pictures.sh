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

# Each frame is a caption, the output of the program, and a form feed. The program colours the same
# words on a terminal.
awk -v RS='\f' '
{
	gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;"); gsub(/>/, "\\&gt;")
	gsub(/Unhealthy/, "<tspan fill=\"#f85149\">&</tspan>")
	gsub(/Healthy/, "<tspan fill=\"#3fb950\">&</tspan>")
	sub(/\n+$/, "")
	frames[NR] = $0
	n = split($0, lines, "\n")
	if (n > most) most = n
}
END {
	height = 19 * most + 40
	print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 748 " height "\" width=\"748\" height=\"" height "\" role=\"img\" aria-label=\"generic-dp status while a USB stick is unplugged and returns\">"
	print "<style>text { font: 14px ui-monospace, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; fill: #d0d7de; white-space: pre }"
	print "g { opacity: 0; animation: show " 4 * NR "s step-end infinite } g:last-of-type { opacity: 1 }"
	print "@keyframes show { 0% { opacity: 1 } " 100 / NR "% { opacity: 0 } 100% { opacity: 0 } }"
	print "@media (prefers-reduced-motion) { g { animation: none } }</style>"
	print "<rect width=\"748\" height=\"" height "\" rx=\"8\" fill=\"#0d1117\"/>"
	for (i = 1; i <= NR; i++) {
		n = split("# " frames[i], lines, "\n")
		print "<g style=\"animation-delay: " 4 * (i - 1 - NR) "s\">"
		print "<text x=\"14\" y=\"28\">" lines[1] "</text><text x=\"14\" y=\"47\">$ generic-dp status --watch</text>"
		for (k = 2; k <= n; k++) print "<text x=\"14\" y=\"" 28 + 19 * k "\">" lines[k] "</text>"
		print "</g>"
	}
	print "</svg>"
}' "$temp/frames" >"$out/replug.svg"
GENERIC_DP_STATUS=$temp/status.json GENERIC_DP_PICTURES=$PWD/$out go test -count=1 -tags grpcnotrace,browser -run TestPicture ./internal/status
