#!/usr/bin/env bash
# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Raises every dependency that a tool module has in common with the root module
# to the root module's version. Go compiles a package once per version: where
# the versions agree, the Kubernetes libraries are compiled once for the
# product and the tools named below, and that is minutes of a first build. Their
# go directive follows too: it picks the compiler where several are installed.
#
# Run it after a change of the root go.mod: make tools-align
set -euo pipefail
cd "$(dirname "$0")"

# golangci-lint shares no Kubernetes library, and Helm is written for newer ones.
modules=${*:-kubernetes coredns controller-gen}

versions() { # of everything that a module requires: "path version", sorted
	go mod edit -C "$1" -json |
		sed -n 's/^\t\t\t"Path": "\(.*\)",$/\1/p; s/^\t\t\t"Version": "\(.*\)",\{0,1\}$/\1/p' |
		paste -d' ' - - | sort
}

goversion=$(go mod edit -C ../.. -json | sed -n 's/^\t"Go": "\(.*\)",$/\1/p')
for module in $modules; do
	go mod edit -C "$module" -go="$goversion"
	join <(versions ../..) <(versions "$module") |
		while read -r path root tool; do
			# v0.0.0 is a staging repository, which a replace pins.
			[ "$tool" = v0.0.0 ] || [ "$root" = "$tool" ] && continue
			# Never lower: that could take the tool itself down with it.
			printf '%s\n%s\n' "$tool" "$root" | sort -CV && echo "$path@$root"
		done | xargs -r go get -C "$module"
	(cd "$module" && go mod tidy)
done
