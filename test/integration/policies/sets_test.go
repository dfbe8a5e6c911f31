// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func setOfWorkspaces(t *testing.T, annotations, inference string) *unstructured.Unstructured {
	t.Helper()
	objects, err := parse(fmt.Appendf(nil, "apiVersion: kaito.sh/v1beta1\nkind: InferenceSet\nmetadata: {name: chat, namespace: team-a}\n"+
		"spec: {template: {metadata: {annotations: {%s}}, %s}}\n", annotations, inference))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, inference)
	}
	return objects[0]
}

// TestAllowedOfSets asks in a set's template for what the administrator does not allow a Workspace, and for what he does.
func TestAllowedOfSets(t *testing.T) {
	limited(t)
	tests := []struct {
		reason, annotations, inference string
		want                           bool
	}{
		{"a preset", "", preset, true},
		{"a template with an approved image", "", "inference: {template: {spec: {" + container + "}}}", true},
		{"another image", "", "inference: {template: {spec: {containers: [{name: a, image: other.example/a}]}}}", false},
		{"another engine's image", "", "inference: {preset: {name: m}, engine: {image: other.example/a}}", false},
		{"a load balancer for each", "kaito.sh/enablelb: 'True'", preset, false},
		{"another ServiceAccount", "", "inference: {preset: {name: m}, pod: {serviceAccountName: admin}}", false},
		{"a directory of the node", "", "inference: {template: {spec: {" + container + ", volumes: [{name: v, hostPath: {path: /etc}}]}}}", false},
		{"pods of another set", "", "inference: {preset: {name: m}, pod: {labels: {inferenceset.kaito.sh/created-by: other}}}", false},
		{"machines of others", "", "inference: {preset: {name: m}, pod: {tolerations: [{key: modelberth.dev/workspace-uid, operator: Exists}]}}", false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			err := api.Create(t.Context(), setOfWorkspaces(t, test.annotations, test.inference), client.DryRunAll)
			if (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}
