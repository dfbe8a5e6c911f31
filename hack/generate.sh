#!/usr/bin/env bash
# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the generated files: deepcopy functions and the chart's CRDs from the API's types, and the references of
# kubectl-berth and of the controller's metrics.
# CONTROLLER_GEN names the built tool; without it, Go builds and runs the pinned one.
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
go run -buildvcs=false ./hack/crdgen -crd charts/modelberth/files/crds/kaito.sh_inferencesets.yaml \
	-rules api/v1beta1/inferenceset_rules.yaml -template api/v1beta1/rules.yaml

go run -buildvcs=false ./hack/clidocs
go run -buildvcs=false ./hack/metricsdocs

# A set's template obeys the policies of Workspaces: the same rules, at the template's place.
policies=charts/modelberth/files/policies
for file in workspaces workspaces-warnings; do
	sed -e 's/modelberth-workspaces/modelberth-inferencesets/' \
		-e 's/resources: \[workspaces\] # and never workspaces/resources: [inferencesets] # and never inferencesets/' \
		-e 's/object\.?resource != oldObject\.?resource/object.?spec != oldObject.?spec/' \
		-e 's/bject\.?resource\.?labelSelector/bject.?spec.?labelSelector/g' \
		-e 's/bject\.?resource/bject.?spec.?template.?resource/g' \
		-e 's/bject\.?inference/bject.?spec.?template.?inference/g' \
		-e 's/bject\.metadata\.?annotations/bject.?spec.?template.?metadata.?annotations/g' \
		-e 's/object\.metadata\.annotations\[/object.spec.template.metadata.annotations[/g' \
		-e "s/\([\"' ]\)annotation kaito/\1spec.template.metadata: annotation kaito/g" \
		-e 's/: "resource\.labelSelector/: "spec.labelSelector/' \
		-e 's/: "preset\./: "spec.template.inference.preset./' -e 's/: "\(resource\|inference\)\./: "spec.template.\1./' \
		-e 's/<= 52$/<= 46/' -e 's/<= 52"/<= 46"/' -e 's/, but at most 52 are allowed/, but at most 46 are allowed/' \
		-e 's/because a label of its pods contains the name and a hash/because a label of the pods of its Workspaces contains the name with 6 more characters and a hash/' \
		-e '3a # Generated from '"$file"'.yaml by hack/generate.sh. DO NOT EDIT.\n#' \
		"$policies/$file.yaml" >"$policies/${file/workspaces/inferencesets}.yaml"
done
