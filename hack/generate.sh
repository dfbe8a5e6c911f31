#!/usr/bin/env bash
# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes what is made from code: from the API's types their deepcopy functions and
# the CRD in the chart, from the commands of kubectl-berth their reference.
# CONTROLLER_GEN names the built tool; without it Go builds and runs the pinned one.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${CONTROLLER_GEN:-}" ]; then
	built=$(mktemp -d)
	trap 'rm -rf "$built"' EXIT
	go build -C hack/tools/controller-gen -o "$built/" sigs.k8s.io/controller-tools/cmd/controller-gen
	CONTROLLER_GEN=$built/controller-gen
fi

"$CONTROLLER_GEN" object:headerFile=hack/tools/controller-gen/header.txt paths=./api/...
"$CONTROLLER_GEN" crd paths=./api/... output:crd:dir=charts/modelberth/files/crds
go run -buildvcs=false ./hack/crdgen
go run -buildvcs=false ./hack/clidocs
