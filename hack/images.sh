#!/usr/bin/env bash
# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the container images of this tree without a container engine, and
# prints the path of each on its own line:
#
#   controller, agent, router   static binaries of this module
#   verifier            static binary of verifier/, which runs beside the controller where keyless signatures are verified
#   pause               static binary of hack/image/pause; holds a pod's namespaces
#   llamacpp            llama-server and curl of Debian unstable, for CPUs
#   vllm                static binary of test/vllmsim, which stands in for vLLM's image in tests
#
#   images.sh [NAME...]     all but the verifier, or the named ones
#
# NAME-HASH.tar in $MODELBERTH_CACHE/images is an OCI image layout; HASH is of
# everything that decides the content, so what is there already is not built
# again. NAME.tar is a hard link to it in $IMAGES, which make sets to a directory
# of the checkout's own: what another checkout builds meanwhile changes nothing.
# GOARCH=arm64 builds the Go images for another architecture, as NAME-arm64.tar.
# VERSION=0.1.0 labels them with a version.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
cache=${MODELBERTH_CACHE:-$HOME/.cache/modelberth}
images=$cache/images
links=${IMAGES:-$images}
registry=registry.local:5000/modelberth
user=65532
host_arch=$(go env GOHOSTARCH)
arch=${GOARCH:-$host_arch}
suffix=
[ "$arch" = "$host_arch" ] || suffix=-$arch
# How many builds of an image are kept for who changes between them.
keep=4
llama_packages=llama.cpp-tools,llama.cpp-tools-extra,libggml0-backend-rpc,curl,ca-certificates
certificates=/usr/share/ca-certificates/mozilla

say() { echo "$*" >&2; }

fail() {
	say "images.sh: $*"
	exit 1
}

# Prints a hash of the given files and of all that lies below the given directories,
# tests left out.
hash_of() {
	local found
	found=$(cd "$top" && find "$@" -type f ! -name '*_test.go' ! -path '*/testdata/*' -print0 | LC_ALL=C sort -z | xargs -0r sha256sum)
	sha256sum <<<"$found" | cut -c1-12
}

# Prints a hash of all that decides image $1.
inputs() {
	local of
	case $1 in
	controller | agent | router) of=$(cd "$top" && hash_of go.mod go.sum $(ls -d api cmd pkg presets charts/*/files 2>/dev/null || true) hack/image hack/images.sh) ;;
	verifier) of=$(hash_of verifier hack/image hack/images.sh) ;;
	vllm) of=$(hash_of go.mod go.sum test/vllmsim hack/image hack/images.sh) ;;
	*) of=$(hash_of hack/image hack/images.sh) ;;
	esac
	echo "$1 $of $arch $(go env GOVERSION) ${VERSION:-}" | sha256sum | cut -c1-12
}

# The program that writes images: $IMAGE where Make has built it.
image_tool() {
	if [ -x "${IMAGE:-}" ]; then
		echo "$IMAGE"
		return
	fi
	local tool
	tool=$cache/tools/image-$(hash_of hack/image)/image
	if [ ! -x "$tool" ]; then
		mkdir -p "$(dirname "$tool")"
		(cd "$here/image" && env -u GOARCH CGO_ENABLED=0 go build -buildvcs=false -o "$tool.new" .)
		mv "$tool.new" "$tool"
	fi
	echo "$tool"
}

# Builds package $2 of the module in directory $1 into file $3. -trimpath: the file must not depend on this machine's directories.
go_build() {
	(cd "$top/$1" && CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$3" "$2")
}

# Image $1 of the binary that package $3 in module $2 makes, to file $4; the rest are flags of the image tool.
build_go() {
	local name=$1 out=$4 binary=$work/$1 flags=("${@:5}")
	go_build "$2" "$3" "$binary"
	if [ "$name" != pause ] && [ "$name" != vllm ]; then
		compgen -G "$certificates/*.crt" >/dev/null || fail "no CA certificates in $certificates: apt-get install ca-certificates"
		# The distribution's own, and none that somebody added to this machine.
		cat "$certificates"/*.crt >"$work/ca-certificates.crt"
		flags+=(--ca-certs "$work/ca-certificates.crt")
	fi
	[ -z "${VERSION:-}" ] || flags+=(--label "org.opencontainers.image.version=$VERSION")
	"$tool" build --binary "$binary" --entrypoint "$(basename "$3")" --platform "linux/$arch" --user "$user" \
		--tag "$registry/$name:dev" --label "org.opencontainers.image.title=modelberth-$name" \
		--label org.opencontainers.image.licenses=Apache-2.0 --out "$out" "${flags[@]}" >&2
}

# How mmdebstrap may work here: as root, or in a user namespace.
debootstrap_mode() {
	command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing: apt-get install mmdebstrap"
	if [ "$(id -u)" = 0 ]; then
		echo root
	elif unshare --user --map-root-user true 2>/dev/null && command -v newuidmap >/dev/null && grep -q "^$(id -un):" /etc/subuid; then
		echo unshare
	else
		fail "the llamacpp image needs root, or for mmdebstrap user namespaces, package uidmap and a range of ids for $(id -un) in /etc/subuid and /etc/subgid"
	fi
}

# The Debian mirror that this machine uses, from apt's own configuration.
debian_mirror() {
	apt-get indextargets --format '$(REPO_URI) $(LABEL)' | awk '$2 == "Debian" && !n++ { print $1 }'
}

build_llamacpp() {
	local out=$1 mode mirror version
	[ -z "$suffix" ] || fail "the llamacpp image is built for this machine's architecture only"
	mode=$(debootstrap_mode)
	mirror=$(debian_mirror)
	[ -n "$mirror" ] || fail "apt knows no Debian archive: add one to /etc/apt/sources.list.d and run apt-get update"
	# Packages are extracted and not installed, so nothing of theirs runs. A mirror
	# may hold unstable as of some day, so the age of its index says nothing.
	mmdebstrap --quiet --mode="$mode" --variant=extract --include="$llama_packages" \
		--keyring=/usr/share/keyrings/debian-archive-keyring.gpg --aptopt='Acquire::Check-Valid-Until "false"' \
		sid "$work/rootfs.tar" "$mirror" >&2
	version=$(tar tf "$work/rootfs.tar" | sed -n 's/.*\/libllama\.so\.\([0-9]*\.[0-9.]*\)$/\1/p')
	# etc/apt names this machine's mirror; the rest is not needed to serve.
	"$tool" rootfs --tar "$work/rootfs.tar" --entrypoint /usr/bin/llama-server --user "$user" --env HOME=/tmp \
		--bundle usr/share/ca-certificates/mozilla=etc/ssl/certs/ca-certificates.crt \
		--drop etc/apt --drop etc/dpkg --drop etc/resolv.conf --drop etc/hostname --drop etc/fstab --drop 'etc/debconf*' \
		--drop var --drop 'usr/share/doc/*/*' --keep 'usr/share/doc/*/copyright' \
		--drop usr/share/man --drop usr/share/locale --drop usr/share/lintian --drop usr/share/bug --drop usr/share/gcc \
		--drop usr/share/perl5 --drop usr/share/debconf --drop usr/share/pixmaps --drop usr/share/bash-completion \
		--drop 'usr/bin/debconf*' --drop usr/sbin --drop usr/bin/openssl --drop 'usr/lib/*/gconv' \
		--tag "$registry/llamacpp:dev" --label org.opencontainers.image.title=llama.cpp \
		--label "org.opencontainers.image.version=$version" --label org.opencontainers.image.licenses=MIT --out "$out" >&2
}

# Makes image $1 unless it is there, and prints the path of its link.
make_image() {
	local name=$1 link file
	link=$links/$name$suffix.tar
	file=$name$suffix-$(inputs "$name").tar
	if [ ! -e "$images/$file" ]; then
		say "building image $name"
		case $name in
		controller | agent | router) build_go "$name" . "./cmd/modelberth-$name" "$images/$file" ;;
		verifier) build_go verifier verifier . "$images/$file" --entrypoint modelberth-verifier ;;
		pause) build_go pause hack/image ./pause "$images/$file" ;;
		# Entrypoint and user of the upstream image.
		vllm) build_go vllm . ./test/vllmsim "$images/$file" --entrypoint vllm --entrypoint-arg serve --user 2000 ;;
		llamacpp) build_llamacpp "$images/$file" ;;
		*) fail "there is no image $name: name controller, agent, router, verifier, pause, llamacpp or vllm" ;;
		esac
		forget_old "$name$suffix"
	fi
	# Replaced in one step, because somebody may be reading it.
	ln -fT "$images/$file" "$link"
	echo "$link"
}

# Removes the builds of image $1 but the newest ones.
forget_old() {
	local hash='????????????'
	# shellcheck disable=SC2012,SC2086 # the names are our own, and $hash is a pattern
	(cd "$images" && ls -t "$1"-$hash.tar | tail -n "+$((keep + 1))" | xargs -r rm -f --)
}

mkdir -p "$images" "$links"
exec 9>"$images/.lock"
flock 9
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tool=$(image_tool)
[ $# -gt 0 ] || set -- controller agent router pause llamacpp vllm
for name in "$@"; do
	if [ "$name" = controller ] && [ ! -d "$top/cmd/modelberth-controller" ]; then
		say "cmd/modelberth-controller is not there yet: no controller image"
		continue
	fi
	make_image "$name"
done
