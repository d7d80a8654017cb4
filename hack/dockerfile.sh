#!/usr/bin/env bash
# Builds the Dockerfile's image and compares it with the image of `make image`: it must have
# the same binary, byte for byte, the same entrypoint, and no other file.
#
# It uses no registry and no daemon. The base image has the name in the Dockerfile, and contains
# this machine's Go toolchain, make and a static shell; modules come from the module cache.
# Needs root; installs buildah and busybox-static with apt-get.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
image=localhost/generic-dp:dockerfile
start=$SECONDS

say() { echo "dockerfile: $*"; }
fail() {
	say "$*" >&2
	exit 1
}

base=$(sed -n 's/^FROM \(.*golang:.*\) AS build$/\1/p' Dockerfile)
[[ -n $base ]] || fail "the Dockerfile has no line FROM ...golang:... AS build"
have=$(go env GOVERSION)
[[ $have == "go${base##*:}" || $have == "go${base##*:}".* ]] ||
	fail "this machine has $have, want $base as in the Dockerfile: their binaries differ"

static() { command -v "$1" >/dev/null && ! ldd "$(command -v "$1")" >/dev/null 2>&1; }
if ! command -v buildah >/dev/null || ! static busybox; then
	command -v apt-get >/dev/null || fail "install the equivalents of these Debian packages: buildah busybox-static"
	say "installing buildah busybox-static"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends buildah busybox-static >/dev/null
fi

work=$(mktemp -d)
# vfs works on any file system and leaves no mounts behind.
store() { buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" "$@"; }
trap 'rm -rf --one-file-system "$work"' EXIT

# make_base makes the base image: the toolchain at its official path, a shell, and a mounted
# directory as the only module proxy.
make_base() {
	local ctr root
	ctr=$(store from scratch)
	root=$(store mount "$ctr")
	mkdir -p "$root"/{bin,etc,go,root,usr/local/go}
	mkdir -m 1777 "$root/tmp"
	cp "$(command -v busybox)" "$root/bin/busybox"
	ln -s busybox "$root/bin/sh"
	cp "$(command -v make)" "$root/bin/make"
	ldd "$(command -v make)" | grep -o '/[^ ]*' | while read -r lib; do install -D "$lib" "$root$lib"; done
	(cd "$(go env GOROOT)" && tar -ch --exclude=./test --exclude=./api --exclude=./doc .) | tar -x -C "$root/usr/local/go" --no-same-owner
	store config --workingdir /go \
		--env PATH=/usr/local/go/bin:/bin --env GOPATH=/go --env GOTOOLCHAIN=local --env GOPROXY=file:///modules "$ctr"
	store commit --quiet --rm "$ctr" "$base" >/dev/null
	say "made $base of $have in $((SECONDS - start)) s"
}
make_base

go mod download
began=$SECONDS
store build --quiet --isolation chroot --pull-never --volume "$(go env GOMODCACHE)/cache/download:/modules:ro" \
	--build-arg "VERSION=$version" --tag "$image" . >/dev/null
say "built the Dockerfile in $((SECONDS - began)) s"

# The binary of `make image` for this platform.
arch=$(go env GOARCH)
[[ $arch != arm ]] || arch=arm7
make --no-print-directory image VERSION="$version" OUT="$work/dist" >/dev/null

root=$(store mount "$(store from --pull-never "$image")")
files=$(cd "$root" && find . -type f | sort | tr '\n' ' ')
[[ $files == "./generic-dp ./generic-dp-evict " ]] || fail "the image contains $files, want ./generic-dp and ./generic-dp-evict only"
for program in "" -evict; do
	cmp "$root/generic-dp$program" "$work/dist/generic-dp-linux-$arch$program" || fail "generic-dp$program differs from make image"
done
config=$(store inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' "$image")
[[ $config == "0:0 [/generic-dp] [serve]" ]] || fail "user, entrypoint and command are $config, want 0:0 [/generic-dp] [serve]"
say "equal to make image of $version, $(stat -c %s "$root/generic-dp") bytes, $(sha256sum <"$root/generic-dp" | cut -c1-16), in $((SECONDS - start)) s"
