#!/usr/bin/env bash
# Provides what the end-to-end tests run: Debian packages that are missing, and
# kubelet, containerd, its shim, ctr and runc built from the Go modules that
# tools/*/go.mod pin.
#
#   deps.sh            install and build what is missing, say nothing if all is there
#   deps.sh --cluster  and a control plane: etcd, kube-apiserver,
#                      kube-controller-manager, kube-scheduler, kubectl, helm, cosign
#   deps.sh --next     and kubelet and control plane of the next minor version, with
#                      names such as kubelet-1.37
#   deps.sh --bin      print the directory of the binaries and do nothing else
#
# The binaries are kept outside the repository, in a directory named after the
# pins, so that every clone and every branch with the same pins shares them.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${GENERIC_DP_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/generic-dp-e2e}
# This file counts too, for the build flags below.
key=$(cd "$here" && { uname -m; cat deps.sh tools/*/go.mod tools/*/go.sum; } | sha256sum | cut -c1-16)
bin=$cache/$key/bin

tools=(kubelet) others=() next=()
for arg; do
	case $arg in
	--bin)
		echo "$bin"
		exit
		;;
	--cluster) tools+=(kube-apiserver kube-controller-manager kube-scheduler kubectl) others=(etcd helm cosign) ;;
	--next) next=({kubelet,kube-apiserver,kube-controller-manager,kube-scheduler}-1.37) ;;
	*)
		echo "usage: deps.sh [--bin] [--cluster] [--next]" >&2
		exit 2
		;;
	esac
done

say() { echo "e2e-deps: $*"; }

# packages installs Debian packages. A machine without apt-get is told what it
# lacks: the names differ, the things do not.
packages() {
	if ! command -v apt-get >/dev/null; then
		say "install the equivalents of these Debian packages: $*" >&2
		exit 1
	fi
	local sudo=() start=$SECONDS
	[[ $EUID == 0 ]] || sudo=(sudo)
	say "installing $*"
	"${sudo[@]}" apt-get update -qq
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
	say "installed $* in $((SECONDS - start)) s"
}

# version prints the pinned version of module $2 in tools/$1.
version() { go -C "$here/tools/$1" list -m -f '{{.Version}}' "$2"; }

# build compiles packages of module tools/$1 (version $2) with the go build
# arguments that follow, one package under the name $3, several, with $3 empty,
# under those of their directories. A binary appears only when it is whole.
build() {
	local tool=$1 version=$2 name=$3 start=$SECONDS
	shift 3
	say "building ${name:-$tool} $version"
	rm -rf "$bin/.tmp"
	mkdir -p "$bin/.tmp"
	go -C "$here/tools/$tool" build -buildvcs=false -o "$bin/.tmp/$name" "$@"
	mv "$bin"/.tmp/* "$bin/"
	rmdir "$bin/.tmp"
	say "built ${name:-$tool} $version in $((SECONDS - start)) s"
}

missing=()
# Pods with a network of their own: ptp and host-local.
[[ -x /usr/lib/cni/ptp || -x /opt/cni/bin/ptp ]] || missing+=(containernetworking-plugins)
command -v ip >/dev/null || missing+=(iproute2)
if [[ ! -x $bin/runc ]]; then
	command -v gcc >/dev/null || missing+=(gcc libc6-dev)
	command -v pkg-config >/dev/null || missing+=(pkg-config)
	pkg-config --exists libseccomp 2>/dev/null || missing+=(libseccomp-dev)
fi
[[ ${#missing[@]} == 0 ]] || packages "${missing[@]}"

have() { for tool; do [[ -x $bin/$tool ]] || return 1; done; }
have runc containerd containerd-shim-runc-v2 ctr "${tools[@]}" "${others[@]}" "${next[@]}" && exit

mkdir -p "$bin"
# Two runs at once, of two clones say, build once.
exec 9>"$cache/$key/lock"
flock 9
start=$SECONDS

# The sandbox of a pod has a seccomp profile, which runc can only load through
# libseccomp, hence cgo.
have runc ||
	CGO_ENABLED=1 build runc "$(version runc github.com/opencontainers/runc)" runc \
		-tags seccomp -ldflags '-s -w' github.com/opencontainers/runc

# Only the native snapshotter is used. Its version is what the kubelet asks for
# over CRI and wants to parse.
if ! have containerd containerd-shim-runc-v2 ctr; then
	v=$(version containerd github.com/containerd/containerd/v2)
	CGO_ENABLED=0 build containerd "$v" "" \
		-tags no_btrfs,no_devmapper,no_zfs \
		-ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$v" \
		github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
fi

# kubernetes builds program $2 of module tools/$1 under the name $3. Without -X a
# kubelet calls itself v0.0.0-master, which it cannot parse.
# No build tags and no -trimpath: the tests compile the kubelet's device manager
# with CGO_ENABLED=0 and find its packages in the build cache.
kubernetes() {
	have "$3" && return
	local v major minor p=k8s.io/component-base/version
	v=$(version "$1" k8s.io/kubernetes)
	IFS=. read -r major minor _ <<<"${v#v}"
	CGO_ENABLED=0 build "$1" "$v" "$3" \
		-ldflags "-s -w -X $p.gitVersion=$v -X $p.gitMajor=$major -X $p.gitMinor=$minor -X $p.gitTreeState=clean" \
		"k8s.io/kubernetes/cmd/$2"
}
for tool in "${tools[@]}"; do kubernetes kubernetes "$tool" "$tool"; done
for tool in "${next[@]}"; do kubernetes "kubernetes-${tool##*-}" "${tool%-*}" "$tool"; done

for tool in "${others[@]}"; do
	have "$tool" && continue
	case $tool in
	etcd) module=go.etcd.io/etcd/server/v3 main=$module ;;
	helm) module=helm.sh/helm/v3 main=$module/cmd/helm ;;
	cosign) module=github.com/sigstore/cosign/v3 main=$module/cmd/cosign ;;
	esac
	CGO_ENABLED=0 build "$tool" "$(version "$tool" "$module")" "$tool" -ldflags '-s -w' "$main"
done
say "ready in $((SECONDS - start)) s: $bin"
