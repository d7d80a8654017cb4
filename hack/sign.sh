#!/usr/bin/env bash
# Signs what was pushed to a registry, by digest, and a file of checksums:
#
#   hack/sign.sh SHA256SUMS IMAGE@DIGEST...
#
# In a workflow that has an identity, cosign needs no key: who verifies asks for that
# identity. COSIGN_FLAGS are further flags, such as the key of a test.
set -euo pipefail
sums=$1
shift
read -ra flags <<<"${COSIGN_FLAGS:-}"
cosign sign --yes "${flags[@]}" "$@"
cosign sign-blob --yes "${flags[@]}" --bundle "$sums.sigstore.json" "$sums"
