#!/usr/bin/env bash
# Builds the artifacts of a release in the directory OUT:
#
#   VERSION=v1.2.3 OUT=dist hack/release.sh image|packages|chart|plugins|all
#
# Two builds of a commit are equal, byte for byte. The tools are those of hack/release/go.mod, so that the
# Go toolchain, make and GNU tar are all it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

platforms="amd64 arm64 arm7"
plugin_platforms="linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64"

fail() {
	echo "release: $*" >&2
	exit 1
}

# package_version is a version in the grammar of dpkg and rpm, which begins with a digit and has no "-".
# Development versions sort before all releases.
package_version() {
	local plain=${1#v}
	plain=${plain//-/.}
	[[ $plain =~ ^[0-9]+\.[0-9]+\. ]] || plain="0~git.$plain"
	echo "$plain"
}

# build runs a target of the Makefile, which builds programs for the platform in the environment.
build() {
	make --no-print-directory VERSION="$version" "$@" >"$work/log" 2>&1 || fail "make $*: $(cat "$work/log")"
}

tool() { go tool -modfile=hack/release/go.mod "$@"; }

# pack writes an archive without times and owners. The arguments are those of tar.
pack() { tar --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=a+rX,go-w -cf - "$@"; }

# programs builds the programs of the nodes, once.
programs() {
	[[ ! -e $out/generic-dp-linux-amd64 ]] || return 0
	for platform in $platforms; do
		GOOS=linux GOARCH=${platform%7} GOARM=7 build build BIN="$out/generic-dp-linux-$platform"
	done
}

# image builds the image, and a bill of materials for each of its programs. A program has the same
# modules on all platforms.
image() {
	programs
	for platform in $platforms; do
		mkdir "$work/$platform"
		for program in generic-dp generic-dp-evict; do
			cp "$out/${program/generic-dp/generic-dp-linux-$platform}" "$work/$platform/$program"
		done
		pack -C "$work/$platform" generic-dp generic-dp-evict >"$work/$platform.tar"
	done
	go run -C hack/release . -out "$work" -version "$version" image
	pack -C "$work/image" blobs index.json oci-layout >"$out/generic-dp-image.tar"
	for program in generic-dp generic-dp-evict; do
		tool cyclonedx-gomod bin -json -noserial -notimestamp -std -version "$version" -output "$out/$program.cdx.json" "$work/amd64/$program"
	done
}

# packages builds packages for Debian and RPM, with the completions that the program prints.
packages() {
	programs
	mkdir -p "$work/completions"
	build build BIN="$work/generic-dp"
	for shell in bash zsh fish; do
		"$work/generic-dp" completion "$shell" >"$work/completions/$shell"
	done
	for platform in $platforms; do
		for format in deb rpm; do
			ARCH=$platform VERSION=$(package_version "$version") BINARY=$out/generic-dp-linux-$platform COMPLETIONS=$work/completions \
				tool nfpm package --config hack/release/nfpm.yaml --packager "$format" --target "$out/" >"$work/log" || fail "$(cat "$work/log")"
		done
	done
}

# chart archives the chart. The pages and the image of the chart name the version in Chart.yaml.
chart() {
	local file=deploy/helm/generic-dp/Chart.yaml
	grep -qx "version: ${version#v}" "$file" && grep -qx "appVersion: $version" "$file" || fail "$file has another version than $version"
	mkdir "$work/chart"
	cp -r deploy/helm/generic-dp "$work/chart/"
	cp LICENSE "$work/chart/generic-dp/"
	pack -C "$work/chart" generic-dp | gzip -9n >"$out/generic-dp-${version#v}.tgz"
}

# plugins builds an archive with the plugin of kubectl for each platform, and the manifest by which Krew
# installs it. Krew requires the license in it.
plugins() {
	sed "s/{VERSION}/$version/" hack/release/krew.yaml >"$out/generic-dp-krew.yaml"
	for platform in $plugin_platforms; do
		local program=kubectl-generic_dp file=kubectl-generic_dp-$platform.tar.gz
		[[ $platform != windows-* ]] || program+=.exe
		GOOS=${platform%-*} GOARCH=${platform#*-} build plugin PLUGIN="$work/$program"
		pack -C "$work" "$program" -C "$PWD" LICENSE | gzip -9n >"$out/$file"
		sed -i "s/{SHA256 $platform}/$(sha256sum <"$out/$file" | cut -d' ' -f1)/" "$out/generic-dp-krew.yaml"
	done
}

all() {
	image
	packages
	chart
	plugins
	go run -C hack/release . -out "$out" distributions
	(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
}

case ${1-} in
image | packages | chart | plugins | all) ;;
package-version)
	package_version "$VERSION"
	exit
	;;
*) fail "want image, packages, chart, plugins or all" ;;
esac
version=$VERSION
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOFLAGS=-buildvcs=false
# The directory is empty, so that the checksums have no file of another version.
out=$work/out
mkdir "$out"
"$1"
mkdir -p "$OUT"
cp "$out"/* "$OUT/"
(cd "$out" && du --apparent-size -h -- *)
