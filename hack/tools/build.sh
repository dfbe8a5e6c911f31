#!/usr/bin/env bash
# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the pinned tools of hack/tools from source into a cache, once.
#
#   build.sh dirs          prints the cache directory of every tool
#   build.sh build TOOL... builds those that the cache lacks
#
# A tool is a Go module whose go.mod pins its version and names its commands in
# tool directives. The directory in the cache carries a hash of everything that
# decides the result, so a new pin never meets an old binary; and it is renamed
# into place when it is complete, so a directory that exists can be used.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${MODELBERTH_CACHE:-$HOME/.cache/modelberth}/tools
# Tools run on this machine, whatever the product is being built for, and are
# static, so that they also run in a node's own mount namespace.
unset GOOS GOARCH
export CGO_ENABLED=0

go_version() {
	go env -C "$here/kubernetes" GOVERSION
}

# Prints the cache directory of tool $1, as built by Go $2.
dir() {
	local hash
	hash=$({
		cat "$here/$1"/go.mod "$here/$1"/go.sum
		find "$here/$1" -name '*.go' -print0 | LC_ALL=C sort -z | xargs -0r cat
		declare -f build_command ldflags
		echo "$2"
	} | sha256sum)
	echo "$cache/$1-${hash:0:12}"
}

# Prints the version that tool $1 pins of module $2.
pinned() {
	go list -C "$here/$1" -m -f '{{.Version}}' "$2"
}

# Prints the linker flags of tool $1. A command that is built as a dependency
# does not know its own version, and clients ask these for theirs.
ldflags() {
	local version package
	case $1 in
	kubernetes)
		version=$(pinned "$1" k8s.io/kubernetes) || return
		package=k8s.io/component-base/version
		local minor=${version#v*.}
		echo "-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
		;;
	controller-gen)
		version=$(pinned "$1" sigs.k8s.io/controller-tools) || return
		echo "-X sigs.k8s.io/controller-tools/pkg/version.version=$version"
		;;
	golangci-lint)
		version=$(pinned "$1" github.com/golangci/golangci-lint/v2) || return
		echo "-X main.version=${version#v} -X main.date=from-source"
		;;
	helm)
		version=$(pinned "$1" helm.sh/helm/v3) || return
		echo "-X helm.sh/helm/v3/internal/version.version=$version"
		;;
	esac
}

# Builds package $2 of tool $1 into directory $3 with the linker flags $4.
build_command() {
	go build -C "$here/$1" -buildvcs=false -ldflags "-s -w $4" -o "$3/" "$2"
}

build() {
	local tool=$1 target
	target=$(dir "$tool" "$(go_version)")
	[ -d "$target" ] && return
	mkdir -p "$cache"

	# One build of a tool at a time; whoever waited finds it done.
	exec 9>"$cache/.$tool.lock"
	flock -n 9 || {
		echo "waiting for another build of $tool"
		flock 9
	}
	[ -d "$target" ] && return

	rm -rf "$cache/.$tool."*/ # what a killed build left
	local tmp log
	tmp=$(mktemp -d "$cache/.$tool.XXXXXX")
	log=$tmp/build.log
	if ! build_into "$tool" "$tmp" 2>"$log"; then
		cat "$log" >&2
		rm -rf "$tmp"
		exit 1
	fi
	rm -f "$log"
	chmod 755 "$tmp"
	mv -T "$tmp" "$target"
	exec 9>&-
}

# Builds the commands of tool $1 into directory $2, with a line for each.
build_into() {
	local packages package flags start
	packages=$(go list -C "$here/$1" tool | sort) || return
	flags=$(ldflags "$1") || return
	for package in $packages; do
		start=$SECONDS
		printf 'building %s from source, once ... ' "${package##*/}"
		build_command "$1" "$package" "$2" "$flags" || {
			echo failed
			return 1
		}
		printf '%d s\n' $((SECONDS - start))
	done
}

command -v go >/dev/null || {
	echo "go is not in PATH: install Go 1.26 or later from https://go.dev/dl" >&2
	exit 1
}
action=${1:-}
[ $# -gt 0 ] && shift
case $action in
dirs)
	version=$(go_version)
	for module in "$here"/*/go.mod; do
		dir "$(basename "$(dirname "$module")")" "$version"
	done
	;;
build)
	for tool in "$@"; do
		build "$tool"
	done
	;;
*)
	sed -n '5,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
