#!/usr/bin/env bash
# Provides what the tests in emulated machines need: QEMU, which is installed,
# and Debian's kernel, which is only unpacked.
#
#   deps.sh           install and unpack what is missing, say nothing if all is there
#   deps.sh --kernel  print the directory of the kernel and do nothing else
#
# The kernel is kept outside the repository. It is not replaced by a newer one:
# delete its directory for that.
set -euo pipefail

cache=${GENERIC_DP_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/generic-dp-e2e}
kernel=$cache/linux-amd64

case ${1:-} in
--kernel)
	echo "$kernel"
	exit
	;;
"") ;;
*)
	echo "usage: deps.sh [--kernel]" >&2
	exit 2
	;;
esac

say() { echo "vm-deps: $*"; }

if ! command -v apt-get >/dev/null; then
	if ! command -v qemu-system-x86_64 >/dev/null || [[ ! -d $kernel ]]; then
		say "install qemu-system-x86_64; in $kernel there has to be a kernel's vmlinux and lib/modules" >&2
		exit 1
	fi
	exit
fi

updated=
update() {
	[[ -n $updated ]] || "${sudo[@]}" apt-get update -qq
	updated=yes
}
sudo=()
[[ $EUID == 0 ]] || sudo=(sudo)
start=$SECONDS

if ! command -v qemu-system-x86_64 >/dev/null; then
	say "installing qemu-system-x86"
	update
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends qemu-system-x86 >/dev/null
	say "installed qemu-system-x86 in $((SECONDS - start)) s"
fi
[[ ! -d $kernel ]] || exit 0
if ! command -v xz >/dev/null; then
	update
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends xz-utils >/dev/null
fi

mkdir -p "$cache"
# Two runs at once, of two clones say, unpack once.
exec 9>"$cache/linux.lock"
flock 9
[[ ! -d $kernel ]] || exit 0
update
# linux-image-amd64 is empty and depends on the kernel of the day.
package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }')
say "unpacking $package"
temp=$(mktemp -d "$cache/.linux.XXXXXX")
trap 'rm -rf "$temp"' EXIT
(cd "$temp" && apt-get download -qq -o APT::Sandbox::User=root "$package")
dpkg -x "$temp"/*.deb "$temp/root"
# The emulated processor takes longer to unpack the kernel than to start it, so it
# is given the ELF file inside (Documentation/x86/boot.rst: the payload).
image=$(echo "$temp"/root/boot/vmlinuz-*)
field() { od -An -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }
sectors=$(field $((0x1f1)) 1)
offset=$(((sectors + 1) * 512 + $(field $((0x248)) 4)))
# Behind the stream are four bytes with its size: xz calls that garbage.
size=$(($(field $((0x24c)) 4) - 4))
dd if="$image" bs=1M iflag=skip_bytes,count_bytes skip=$offset count=$size status=none | xz -dc >"$temp/root/vmlinux"
mv "$temp/root" "$kernel"
say "unpacked $package in $((SECONDS - start)) s"
