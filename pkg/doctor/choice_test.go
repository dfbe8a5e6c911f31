// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestChoice: a tenant may label a Deployment like the controller. The doctor checks another one then, and reads no
// ConfigMap from the tenant's flags.
func TestChoice(t *testing.T) {
	labels := map[string]any{appName: product}
	deployment := func(namespace, account string) map[string]any {
		return map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"namespace": namespace, "name": "berth", "labels": labels},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"serviceAccountName": account,
				"containers":         []any{map[string]any{"name": "c", "args": []any{"--settings-config-map=" + namespace + "/own"}}},
			}}},
		}
	}
	binding := func(role, namespace, account string, labels map[string]any) map[string]any {
		return map[string]any{
			"kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "b-" + namespace, "labels": labels},
			"roleRef":  map[string]any{"kind": "ClusterRole", "name": role},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": namespace, "name": account}},
		}
	}
	roleBinding := binding("writer", "tenant", "berth", labels)
	roleBinding["kind"] = "RoleBinding"
	role := func(name, verb string) map[string]any {
		return map[string]any{"kind": "ClusterRole", "metadata": map[string]any{"name": name}, "rules": []any{
			map[string]any{"apiGroups": []any{"kaito.sh"}, "resources": []any{"workspaces", "workspaces/status"}, "verbs": []any{verb}},
		}}
	}
	policy := func(labels map[string]any) map[string]any {
		return map[string]any{"kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "p", "labels": labels}, "spec": map[string]any{
			"matchConditions": []any{map[string]any{"name": "n", "expression": "request.userInfo.username != 'system:serviceaccount:system:berth'"}},
		}}
	}
	system, tenant := deployment("system", "berth"), deployment("tenant", "berth")
	const tenants = "ControllerNotBound Deployment/tenant/berth"
	cases := []struct {
		reason   string
		objects  []map[string]any
		unread   map[string]string
		checked  []string
		settings []string
		findings []string
	}{
		{
			"a ClusterRoleBinding of the chart names one",
			[]map[string]any{tenant, system, binding("other", "system", "berth", labels)},
			nil,
			[]string{"system"},
			[]string{"system/own"},
			[]string{tenants},
		},
		{
			"a ClusterRoleBinding of an administrator lets one write the status of Workspaces",
			[]map[string]any{tenant, system, role("writer", "patch"), binding("writer", "system", "berth", nil)},
			nil,
			[]string{"system"},
			[]string{"system/own"},
			[]string{tenants},
		},
		{
			"an administrator lets the tenant's account read Workspaces",
			[]map[string]any{tenant, system, role("reader", "get"), binding("reader", "tenant", "berth", nil), binding("other", "system", "berth", labels)},
			nil,
			[]string{"system"},
			[]string{"system/own"},
			[]string{tenants},
		},
		{
			"a tenant writes a RoleBinding",
			[]map[string]any{tenant, system, role("writer", "patch"), roleBinding, binding("writer", "system", "berth", nil)},
			nil,
			[]string{"system"},
			[]string{"system/own"},
			[]string{tenants},
		},
		{"a policy names one", []map[string]any{tenant, system, policy(labels)}, nil, []string{"system"}, []string{"system/own"}, []string{tenants}},
		{
			"two installations",
			[]map[string]any{tenant, system, binding("a", "system", "berth", labels), binding("b", "tenant", "berth", labels)},
			nil,
			[]string{"tenant", "system"},
			[]string{"system/own", "tenant/own"},
			nil,
		},
		{"somebody else's policy", []map[string]any{tenant, system, policy(nil)}, nil, []string{"tenant", "system"}, nil, []string{"ControllerUncertain "}},
		{"the bindings are gone", []map[string]any{system}, nil, []string{"system"}, nil, nil},
		{
			"a user who may not read the bindings",
			[]map[string]any{system},
			map[string]string{"ClusterRoleBinding": "forbidden"},
			[]string{"system"},
			[]string{"system/own"},
			nil,
		},
		{
			"such a user sees several",
			[]map[string]any{tenant, system},
			map[string]string{"ClusterRoleBinding": "forbidden"},
			[]string{"tenant", "system"},
			nil,
			[]string{"ControllerUncertain "},
		},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			s := &Snapshot{Unread: c.unread}
			for _, object := range c.objects {
				s.Objects = append(s.Objects, unstructured.Unstructured{Object: object})
			}
			e := newExamination(s)
			checkChoice(e)
			var checked, findings []string
			for _, d := range e.controllers() {
				checked = append(checked, d.Namespace)
			}
			for _, f := range e.findings {
				findings = append(findings, f.ID+" "+f.Object)
			}
			if diff := cmp.Diff(c.checked, checked); diff != "" {
				t.Errorf("checked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.settings, slices.Sorted(slices.Values(s.SettingsConfigMaps()))); diff != "" {
				t.Errorf("ConfigMaps (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.findings, findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
