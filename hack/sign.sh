#!/usr/bin/env bash
# Signs images and charts in a registry, by digest, and a file of checksums:
#
#   hack/sign.sh SHA256SUMS IMAGE@DIGEST...
#
# A workflow signs with its OIDC identity, without a key; verification names that identity.
# COSIGN_FLAGS contains additional flags, such as the key of a test.
set -euo pipefail
sums=$1
shift
read -ra flags <<<"${COSIGN_FLAGS:-}"
cosign sign --yes "${flags[@]}" "$@"
cosign sign-blob --yes "${flags[@]}" --bundle "$sums.sigstore.json" "$sums"
