#!/usr/bin/env bash
# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that the local cloud, the test of the alert rules
# and the race detector need. `install-deps.sh bench-router` installs those that
# the router is measured beside.
# Looks for the program and not for the package, so that a container runtime
# from elsewhere (Docker's containerd.io, say) is used and never replaced.
# Nothing is started: the local cloud runs a containerd of its own for each node.
set -euo pipefail

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# Each line: a package, and the program or file that shows that it is there.
wanted='
containerd                   containerd
runc                         runc
containernetworking-plugins  /usr/lib/cni/ptp
iptables                     iptables
conntrack                    conntrack
iproute2                     ip
util-linux                   nsenter
mmdebstrap                   mmdebstrap
debian-archive-keyring       /usr/share/keyrings/debian-archive-keyring.gpg
ca-certificates              /etc/ssl/certs/ca-certificates.crt
curl                         curl
prometheus                   prometheus
gcc                          gcc
libc6-dev                    /usr/include/stdlib.h
'
case ${1-} in
'') ;;
bench-router)
	wanted='
nginx-light                  nginx
haproxy                      haproxy
'
	;;
*)
	echo "usage: $0 [bench-router]" >&2
	exit 2
	;;
esac

missing=()
while read -r package proof; do
	case $proof in
	'') ;;
	/*) [ -e "$proof" ] || missing+=("$package") ;;
	*) command -v "$proof" >/dev/null || missing+=("$package") ;;
	esac
done <<<"$wanted"
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "missing: ${missing[*]} (Debian packages), and this machine has no apt-get: install these programs with its own package manager" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "missing: ${missing[*]}: install them with sudo hack/install-deps.sh${1:+ $1}" >&2
	exit 1
fi

echo "installing ${missing[*]}"

# Debian starts a service when its package is installed, unless this file says no.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi
log=$(mktemp)
if ! {
	apt-get update &&
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
} </dev/null >"$log" 2>&1; then
	cat "$log" >&2
	echo "installing failed: see the lines of apt-get above (log: $log)" >&2
	exit 1
fi
rm -f "$log"

# Nor at the next boot, where it is new on this machine.
for service in containerd prometheus nginx haproxy; do
	if [[ " ${missing[*]} " == *" $service"[\ -]* ]] && command -v systemctl >/dev/null; then
		systemctl disable "$service.service" >/dev/null 2>&1 || true
	fi
done
