#!/usr/bin/env bash
# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Looks for known vulnerabilities in the code of each given module and in what it calls.
# Skips with one line where the vulnerability database cannot be reached.
#
#   GOVULNDB   address of the database, or file:// of a copy
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
database=${GOVULNDB:-https://vuln.go.dev}
case $database in
file://*) ;;
*)
	if ! curl --fail --silent --location --max-time 5 --output /dev/null "$database/index/db.json"; then
		echo "vulncheck: skipped, because $database cannot be reached: set GOVULNDB to a mirror of it, or to file:// and a copy"
		exit 0
	fi
	;;
esac

"$here/tools/build.sh" build govulncheck
tool=$("$here/tools/build.sh" dirs | grep '/govulncheck-[^/]*$')/govulncheck
status=0
for module in "$@"; do
	echo "vulncheck: $module"
	"$tool" -C "$module" -db "$database" ./... || status=1
done
exit $status
