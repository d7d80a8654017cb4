#!/usr/bin/env bash
# Pushes the image and the chart of a release in the directory OUT to a registry, and prints their
# digests to sign: by then, a tag may have moved. It needs helm.
#
#   VERSION=v1.2.3 OUT=dist hack/publish.sh ghcr.io
set -euo pipefail
cd "$(dirname "$0")/.."

registry=${1:?want a registry, as in make publish REGISTRY=ghcr.io}
archive=$OUT/generic-dp-image.tar
chart=generic-dp-${VERSION#v}.tgz
for file in "$archive" "$OUT/$chart"; do
	[[ -e $file ]] || { echo "publish: $file does not exist: make release VERSION=$VERSION makes it" >&2; exit 1; }
done
layout=$(mktemp -d)
trap 'rm -rf "$layout"' EXIT
tar -xf "$archive" -C "$layout"
image=$(go tool -modfile=hack/release/go.mod crane push "$layout" "$registry/generic-dp/generic-dp:$VERSION")
plain=()
# A registry of the own network may have no certificate: crane tries HTTP there by itself.
[[ ! $registry =~ ^(localhost|127\.|10\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.) ]] || plain=(--plain-http)
charts=$registry/generic-dp/charts
# Helm writes the time of the file to the manifest, whose digest must not depend on it.
cp "$OUT/$chart" "$layout/"
touch -d @0 "$layout/$chart"
log=$(TZ=UTC helm push "${plain[@]}" "$layout/$chart" "oci://$charts" 2>&1) || { echo "$log" >&2; exit 1; }
digest=$(sed -n 's/^Digest: //p' <<<"$log")
[[ -n $digest ]] || { echo "helm has not printed the digest of the chart" >&2; exit 1; }
echo "image=$image"
echo "chart=$charts/generic-dp@$digest"
