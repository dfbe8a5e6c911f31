// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const crdPath = "../../charts/modelberth/files/crds/kaito.sh_workspaces.yaml"

const generated = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations: {controller-gen.kubebuilder.io/version: v0.0.0}
  name: things.example.com
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Instance, type: string, jsonPath: .a}
    - {name: TargetNodeCount, type: integer, jsonPath: .b}
    - {name: State, type: string, jsonPath: .c}
    - {name: Age, type: date, jsonPath: .d}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          names: {type: array, maxItems: 3, items: {type: string}}
          labels: {type: object, additionalProperties: {type: string}}
          count: {type: integer, format: int32, minimum: 1}
          pod:
            type: object
            properties:
              template: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func TestFinish(t *testing.T) {
	crd := parse(t, generated)
	add := additions{}
	const rules = `
bounds:
- {at: "labels{}", maxLength: 63}
rules:
- {at: "", rule: "has(self.count)", message: root}
- {at: names, rule: "size(self) != 1", message: bounded}
- {at: count, rule: "self == oldSelf", message: transition}
- {at: pod, rule: "has(self.template) != myself", fieldPath: .template, message: unknown fields}
`
	if err := yaml.UnmarshalStrict([]byte(rules), &add); err != nil {
		t.Fatal(err)
	}
	if err := finish(crd, add); err != nil {
		t.Fatal(err)
	}

	want := parse(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations: {helm.sh/resource-policy: keep}
  name: things.example.com
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: false
    additionalPrinterColumns:
    - {name: Instance, type: string, jsonPath: .a}
    - {name: Age, type: date, jsonPath: .d}
    schema: &schema
      openAPIV3Schema:
        type: object
        properties:
          names:
            type: array
            maxItems: 3
            items: {type: string}
            x-kubernetes-validations:
            - {rule: "size(self) > 3 || (size(self) != 1)", message: bounded}
          labels: {type: object, additionalProperties: {type: string, maxLength: 63}}
          count:
            type: integer
            format: int32
            minimum: 1
            maximum: 2147483647
            x-kubernetes-validations:
            - {rule: "self == oldSelf", message: transition}
          pod:
            type: object
            properties:
              template: {type: object, x-kubernetes-preserve-unknown-fields: true}
            x-kubernetes-validations:
            - rule: "(has(self.template) != myself) || oldSelf.hasValue() && !(has(oldSelf.value().template) != myself)"
              fieldPath: .template
              optionalOldSelf: true
              message: unknown fields
        x-kubernetes-validations:
        - rule: "(has(self.count)) || oldSelf.hasValue() && !(has(oldSelf.value().count))"
          optionalOldSelf: true
          message: root
  - name: v1beta1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Instance, type: string, jsonPath: .a}
    - {name: TargetNodeCount, type: integer, jsonPath: .b}
    - {name: State, type: string, jsonPath: .c}
    - {name: Age, type: date, jsonPath: .d}
    schema: *schema
`)
	if diff := cmp.Diff(want, crd); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFinishRefuses(t *testing.T) {
	tests := []struct {
		reason string
		edit   func(*apiextensionsv1.CustomResourceDefinition)
		add    additions
		want   string
	}{
		{
			reason: "what was finished before",
			edit: func(crd *apiextensionsv1.CustomResourceDefinition) {
				crd.Spec.Versions = append(crd.Spec.Versions, crd.Spec.Versions[0])
			},
			want: "has 2 versions, want the 1 that controller-gen makes: run hack/generate.sh",
		},
		{
			reason: "a place that was renamed",
			add:    additions{Rules: []rule{{At: "pod.container", ValidationRule: apiextensionsv1.ValidationRule{Rule: "true", Message: "m"}}}},
			want:   `place "pod.container": the schema has no "container"`,
		},
		{
			reason: "items of what is no list",
			add:    additions{Rules: []rule{{At: "pod[]", ValidationRule: apiextensionsv1.ValidationRule{Rule: "true", Message: "m"}}}},
			want:   `place "pod[]": the schema has no "[]"`,
		},
		{
			reason: "a rule that would answer in CEL",
			add:    additions{Rules: []rule{{At: "pod", ValidationRule: apiextensionsv1.ValidationRule{Rule: "true"}}}},
			want:   `place "pod": a rule has no message: true`,
		},
		{
			reason: "two bounds for one field",
			add:    additions{Bounds: []bound{{At: "names"}}},
			want:   `place "names": has a bound already, from a marker: keep one of the two`,
		},
		{
			reason: "a required field whose absence the API server would never forgive",
			edit: func(crd *apiextensionsv1.CustomResourceDefinition) {
				properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
				pod := properties["pod"]
				pod.Required = []string{"template"}
				properties["pod"] = pod
			},
			want: `place "pod": required [template] would block writes to stored objects: make them optional and add a rule`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			crd := parse(t, generated)
			if tt.edit != nil {
				tt.edit(crd)
			}
			err := finish(crd, tt.add)
			if err == nil {
				t.Fatal("finished without an error")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestShortenDescription(t *testing.T) {
	const sentence = "Kubernetes explains one of its fields at length. "
	long := strings.TrimSpace(strings.Repeat(sentence, 10))
	tests := []struct{ reason, text, want string }{
		{"a short one stays", sentence, sentence},
		{"a long one keeps its first sentences", long, strings.TrimSpace(strings.Repeat(sentence, 6))},
		{"an abbreviation ends no sentence", "e.g. this " + long, "e.g. this " + strings.TrimSpace(strings.Repeat(sentence, 6))},
		{"a single sentence stays", strings.Repeat("words ", 100), strings.Repeat("words ", 100)},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			schema := &apiextensionsv1.JSONSchemaProps{Description: test.text}
			shortenDescription(schema)
			if diff := cmp.Diff(test.want, schema.Description); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The chart's CRD has two versions that differ in name, storage and columns. It is kept on uninstall, and small enough
// for a client-side apply with its annotation of 256 KiB.
func TestShippedCRD(t *testing.T) {
	data, err := os.ReadFile(filepath.FromSlash(crdPath))
	if err != nil {
		t.Fatal(err)
	}
	annotation, err := yaml.YAMLToJSON(data) // kubectl keeps this form
	if err != nil {
		t.Fatal(err)
	}
	if len(annotation) > 250<<10 {
		t.Errorf("has %d bytes as JSON, so kubectl apply would fail: leave descriptions of embedded types out", len(annotation))
	}
	crd := parse(t, string(data))
	if crd.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Error("would be deleted with the chart, and all Workspaces with it")
	}
	if len(crd.Spec.Versions) != 2 {
		t.Fatalf("has %d versions, want 2", len(crd.Spec.Versions))
	}
	alpha, beta := crd.Spec.Versions[0], crd.Spec.Versions[1]
	if diff := cmp.Diff(beta.Schema, alpha.Schema); diff != "" {
		t.Errorf("the schemas differ, so one version loses what the other stores (-v1beta1 +v1alpha1):\n%s", diff)
	}
	if alpha.Storage || !beta.Storage || !alpha.Served || !beta.Served {
		t.Error("v1beta1 must be stored and both versions served")
	}
	if alpha.Schema.OpenAPIV3Schema.Properties["resource"].Properties["instanceType"].Default != nil {
		t.Error("KAITO's v1alpha1 default for instanceType would make bring-your-own Workspaces buy")
	}
}

func parse(t *testing.T, text string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(text), crd); err != nil {
		t.Fatal(err)
	}
	return crd
}
