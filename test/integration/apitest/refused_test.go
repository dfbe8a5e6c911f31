// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Users see the message, so it is compared whole.
func TestRefusedManifests(t *testing.T) {
	for i, row := range refusals() {
		for _, version := range []string{"v1beta1", "v1alpha1"} {
			object := row.object(t, i, version)
			t.Run(object.GetName()+"/"+version, func(t *testing.T) {
				t.Log(row.reason)
				object.SetNamespace("refused")
				err := api.Create(t.Context(), object, client.DryRunAll)
				if err == nil {
					t.Fatalf("was accepted:\n%s", row.body)
				}
				if diff := cmp.Diff(row.want, said(err)); diff != "" {
					t.Errorf("message (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Every rule of the CRD and of the policy has a row: here, or among the refused changes.
func TestEveryRuleIsTested(t *testing.T) {
	var wants []string
	for _, row := range refusals() {
		wants = append(wants, row.want)
	}
	for _, row := range changes() {
		wants = append(wants, row.want)
	}
	said := strings.Join(wants, "\n")
	for _, parts := range append(ruleMessages(t), policyMessages(t)...) {
		for _, part := range parts {
			if !strings.Contains(said, part) {
				t.Errorf("no row expects the message %q", parts)
				break
			}
		}
	}
}

// object is the manifest of a row in one version.
func (r refusal) object(t *testing.T, i int, version string) *unstructured.Unstructured {
	t.Helper()
	metadata := r.metadata
	if metadata == "" {
		metadata = "{}"
	}
	object, err := workspace(version, metadata, r.body)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, r.body)
	}
	if object.GetName() == "" {
		object.SetName(fmt.Sprintf("row-%03d", i))
	}
	return object
}

// said strips the prefix of the API server's message: kind and name.
func said(err error) string {
	text := err.Error()
	for _, verdict := range []string{" is invalid: ", " is forbidden: "} {
		if _, after, found := strings.Cut(text, verdict); found {
			return strings.TrimPrefix(after, ": ")
		}
	}
	return text
}

// ruleMessages returns the message of every CEL rule in the CRD.
func ruleMessages(t *testing.T) [][]string {
	t.Helper()
	crd, err := readCRD()
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	var walk func(*apiextensionsv1.JSONSchemaProps)
	walk = func(s *apiextensionsv1.JSONSchemaProps) {
		for _, rule := range s.XValidations {
			out = append(out, []string{rule.Message})
		}
		for name := range s.Properties {
			property := s.Properties[name]
			walk(&property)
		}
		if s.Items != nil {
			walk(s.Items.Schema)
		}
		if s.AdditionalProperties != nil {
			walk(s.AdditionalProperties.Schema)
		}
	}
	walk(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if len(out) < 40 {
		t.Fatalf("found %d rules in the CRD, which has more", len(out))
	}
	return out
}

// policyMessages returns the message of every refusing rule of the policy; of a computed message, its constant parts.
func policyMessages(t *testing.T) [][]string {
	t.Helper()
	policies, err := readPolicies()
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`'([^']*)'`)
	var out [][]string
	for _, policy := range policies {
		if policy.GetName() != "modelberth-workspaces" {
			continue
		}
		validations, _, err := unstructured.NestedSlice(policy.Object, "spec", "validations")
		if err != nil {
			t.Fatal(err)
		}
		for _, validation := range validations {
			fields, _ := validation.(map[string]any)
			if message, ok := fields["message"].(string); ok {
				out = append(out, []string{message})
				continue
			}
			computed, _ := fields["messageExpression"].(string)
			var parts []string
			for _, match := range literal.FindAllStringSubmatch(computed, -1) {
				if strings.Contains(match[1], " ") {
					parts = append(parts, match[1])
				}
			}
			if len(parts) == 0 {
				t.Errorf("a rule of %s has no message: %v", policy.GetName(), fields)
			}
			out = append(out, parts)
		}
	}
	if len(out) < 10 {
		t.Fatalf("found %d rules in the policy, which has more", len(out))
	}
	return out
}

// The rule, the warning and the Go function have the same list of reserved labels.
func TestReservedLabels(t *testing.T) {
	const preset = "\ninference: {preset: {name: m}}"
	for _, key := range v1beta1.ReservedSelectorKeys() {
		for _, selector := range []string{
			"{matchLabels: {" + key + ": a}}", "{matchExpressions: [{key: " + key + ", operator: In, values: [a]}]}",
		} {
			err := api.Create(t.Context(), manifest(t, "reserved", "resource: {labelSelector: "+selector+"}"+preset), client.DryRunAll)
			if err == nil {
				t.Errorf("a selector of %s alone was accepted: %s", key, selector)
			}
		}
		api.warnings.take()
		beside := "resource: {labelSelector: {matchLabels: {a: b, " + key + ": a}}}" + preset
		if err := api.Create(t.Context(), manifest(t, "reserved", beside), client.DryRunAll); err != nil {
			t.Errorf("a selector of %s beside another label: %v", key, err)
		}
		if len(api.warnings.take()) == 0 {
			t.Errorf("nothing warned of %s, which is ignored", key)
		}
	}
	for _, key := range []string{v1beta1.LabelInferenceSet, v1beta1.LabelWorkspaceUID, "kaito.sh/workspaces"} {
		api.warnings.take()
		own := "resource: {labelSelector: {matchLabels: {" + key + ": a}}}" + preset
		if err := api.Create(t.Context(), manifest(t, "reserved", own), client.DryRunAll); err != nil {
			t.Errorf("a selector of %s, which is not reserved: %v", key, err)
		}
		if heard := api.warnings.take(); len(heard) > 0 {
			t.Errorf("a selector of %s, which is not reserved, was warned of: %q", key, heard)
		}
	}
}
