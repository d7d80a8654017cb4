#!/usr/bin/env bash
# Signs images and charts in a registry, by digest, and a file of checksums:
#
#   hack/sign.sh SHA256SUMS IMAGE@DIGEST...
#
# A workflow signs with its OIDC identity, without a key; verification names that identity.
# COSIGN_FLAGS are further flags, such as a test's key.
set -euo pipefail
sums=$1
shift
read -ra flags <<<"${COSIGN_FLAGS:-}"
cosign sign --yes "${flags[@]}" "$@"
cosign sign-blob --yes "${flags[@]}" --bundle "$sums.sigstore.json" "$sums"
