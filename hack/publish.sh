#!/usr/bin/env bash
# Pushes the image and the chart of a release in the directory OUT to a registry, and prints their
# digests to sign: by then, a tag may have moved. It needs helm.
#
#   VERSION=v1.2.3 OUT=dist hack/publish.sh ghcr.io
set -euo pipefail
cd "$(dirname "$0")/.."

registry=$1
layout=$(mktemp -d)
trap 'rm -rf "$layout"' EXIT
tar -xf "$OUT/generic-dp-image.tar" -C "$layout"
image=$(go tool -modfile=hack/release/go.mod crane push "$layout" "$registry/generic-dp/generic-dp:$VERSION")
plain=()
[[ $registry != 127.0.0.1:* ]] || plain=(--plain-http)
charts=$registry/generic-dp/charts
digest=$(helm push "${plain[@]}" "$OUT/generic-dp-${VERSION#v}.tgz" "oci://$charts" 2>&1 | sed -n 's/^Digest: //p')
[[ -n $digest ]] || { echo "helm has not printed the digest of the chart" >&2; exit 1; }
echo "image=$image"
echo "chart=$charts/generic-dp@$digest"
