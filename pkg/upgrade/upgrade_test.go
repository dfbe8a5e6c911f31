// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/charts"
	"github.com/modelberth/modelberth/pkg/upgrade"
)

// shipped returns the rules of this version.
func shipped(t *testing.T) *upgrade.Rules {
	t.Helper()
	objects, err := upgrade.Objects(charts.FS())
	if err != nil {
		t.Fatal(err)
	}
	rules, err := upgrade.Read(objects)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func parse(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	out, err := upgrade.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// workspace returns a stored Workspace with lines below its metadata.
func workspace(name, body string) string {
	return "apiVersion: kaito.sh/v1beta1\nkind: Workspace\nmetadata: {name: " + name + ", namespace: team-a}\n" + body
}

func TestCheckShippedRules(t *testing.T) {
	rules := shipped(t)
	for _, test := range []struct {
		reason, manifest string
		want             []upgrade.Finding
	}{
		{
			reason:   "a valid Workspace has no finding",
			manifest: workspace("good", "inference: {preset: {name: m}}"),
		},
		{
			reason:   "a new rule of the schema is no obstacle to writes, and refuses the same manifest for a new object",
			manifest: workspace("adapter", "inference: {preset: {name: m}, adapters: [{}]}"),
			want: []upgrade.Finding{{
				Problem: upgrade.RefusedIfNew, Kind: "Workspace", Namespace: "team-a", Name: "adapter", Rule: "schema",
				Message: "inference.adapters[0].source: Invalid value: inference.adapters[].source must be set: a name, " +
					"and an image, a volumeSource or a repository",
			}},
		},
		{
			reason:   "a policy refuses the same manifest for a new object",
			manifest: workspace("1-digit", "inference: {preset: {name: m}}"),
			want: []upgrade.Finding{{
				Problem: upgrade.RefusedIfNew, Kind: "Workspace", Namespace: "team-a", Name: "1-digit", Rule: "modelberth-workspaces",
				Message: `metadata.name "1-digit" cannot be the name of a Service: use lower-case letters, digits and dashes, ` +
					`beginning with a letter and ending with a letter or digit`,
			}},
		},
		{
			reason:   "the schema lacks a field",
			manifest: workspace("former", "inference: {preset: {name: m}, former: 1}\nlater: {a: b}"),
			want: []upgrade.Finding{{
				Problem: upgrade.FieldsLost, Kind: "Workspace", Namespace: "team-a", Name: "former", Rule: "schema",
				Message: "the new schema lacks inference.former, later",
			}},
		},
		{
			reason:   "policies judge no child of an InferenceSet, because no person creates it",
			manifest: strings.Replace(workspace("1-child", "inference: {preset: {name: m}}"), "namespace: team-a", "namespace: team-a, ownerReferences: [{apiVersion: kaito.sh/v1beta1, kind: InferenceSet, name: s, uid: u, controller: true}]", 1),
		},
		{
			reason:   "a version is no longer served",
			manifest: strings.Replace(workspace("old", "inference: {preset: {name: m}}"), "v1beta1", "v1alpha0", 1),
			want: []upgrade.Finding{{
				Problem: upgrade.VersionLost, Kind: "Workspace", Namespace: "team-a", Name: "old", Rule: "schema",
				Message: "version v1alpha0 is not served",
			}},
		},
		{
			reason:   "other kinds are not checked",
			manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := rules.Check(t.Context(), &parse(t, test.manifest)[0])
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// definition is a CustomResourceDefinition with one rule.
const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  names: {kind: Boat, plural: boats}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              length: {type: integer}
`

// binding makes a policy deny.
const binding = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: boats}
spec: {policyName: boats, validationActions: [%s]}
`

// boatPolicy returns a policy for all writes of boats.
func boatPolicy(spec, action string) string {
	return definition + strings.Replace(binding, "%s", action, 1) + `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: boats}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [example.com], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [boats]}
` + spec
}

func TestCheckPolicies(t *testing.T) {
	const boat = "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: a, namespace: port}\nspec: {length: 3}\n"
	const tooShort = "  validations:\n  - {expression: object.spec.length > 5, messageExpression: \"'length ' + string(object.spec.length)\"}\n"
	found := func(problem upgrade.Problem, message string) []upgrade.Finding {
		return []upgrade.Finding{{Problem: problem, Kind: "Boat", Namespace: "port", Name: "a", Rule: "boats", Message: message}}
	}
	for _, test := range []struct {
		reason, rules string
		want          []upgrade.Finding
	}{
		{"a policy for every write blocks the controller", boatPolicy(tooShort, "Deny"), found(upgrade.NotWritable, "length 3")},
		{"a policy that only warns refuses nothing", boatPolicy(tooShort, "Warn"), nil},
		{
			"a match condition leaves updates out",
			boatPolicy("  matchConditions: [{name: new, expression: request.operation == 'CREATE'}]\n"+tooShort, "Deny"),
			found(upgrade.RefusedIfNew, "length 3"),
		},
		{
			"an expression without a value refuses",
			boatPolicy("  validations: [{expression: object.spec.width > 5}]\n", "Deny"),
			found(upgrade.NotWritable, "expression 'object.spec.width > 5' resulted in error: no such key: width"),
		},
		{
			"an expression without a value refuses nothing if failures are ignored",
			boatPolicy("  failurePolicy: Ignore\n  validations: [{expression: object.spec.width > 5}]\n", "Deny"), nil,
		},
		{
			"a user without rights writes",
			boatPolicy("  validations: [{expression: \"authorizer.group('').resource('pods').check('get').allowed()\", message: no rights}]\n", "Deny"),
			found(upgrade.NotWritable, "no rights"),
		},
		{
			"variables have values",
			boatPolicy("  variables: [{name: half, expression: object.spec.length / 2}]\n"+
				"  validations: [{expression: variables.half > 1, message: too short}]\n", "Deny"),
			found(upgrade.NotWritable, "too short"),
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			rules, err := upgrade.Read(parse(t, test.rules))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, rules.Check(t.Context(), &parse(t, boat)[0])); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadRefusesUnsupportedRules(t *testing.T) {
	for reason, test := range map[string]struct{ rules, want string }{
		"parameters": {
			boatPolicy("  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'true'}]\n", "Deny"), "parameters",
		},
		"a rule that does not compile": {boatPolicy("  validations: [{expression: nothing(1)}]\n", "Deny"), "undeclared reference"},
		"no definition":                {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "no CustomResourceDefinition"},
	} {
		t.Run(reason, func(t *testing.T) {
			_, err := upgrade.Read(parse(t, test.rules))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
}

func TestCheckDefinition(t *testing.T) {
	rules := shipped(t)
	installed := parse(t, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workspaces.kaito.sh}
spec: {group: kaito.sh, names: {kind: Workspace}}
status: {storedVersions: [v1alpha0, v1beta1]}
`)
	want := []upgrade.Finding{{
		Problem: upgrade.VersionLost, Kind: "CustomResourceDefinition", Name: "workspaces.kaito.sh", Rule: "schema",
		Message: "objects may be stored in version v1alpha0, which the new CustomResourceDefinition " +
			"does not have, so the API server rejects the new definition",
	}}
	if diff := cmp.Diff(want, rules.CheckDefinition(&installed[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
