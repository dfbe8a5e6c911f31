// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// right is a right of the controller.
type right struct{ group, resource, verb string }

func (r right) String() string { return strings.TrimSuffix(r.verb+" "+r.resource+"."+r.group, ".") }

// rights returns the rights of a controller. docs/reference/rbac.md has the whole list with reasons.
func rights(d *appsv1.Deployment) []right {
	out := []right{
		{"kaito.sh", "workspaces", "list"},
		{"kaito.sh", "workspaces", "watch"},
		{"kaito.sh", "workspaces", "patch"},
		{"kaito.sh", "workspaces/status", "patch"},
		{"kaito.sh", "inferencesets", "list"},
		{"apps", "statefulsets", "create"},
		{"apps", "statefulsets", "patch"},
		{"apps", "statefulsets", "delete"},
		{"apps", "controllerrevisions", "create"},
		{"", "services", "create"},
		{"", "services", "patch"},
		{"networking.k8s.io", "networkpolicies", "create"},
		{"", "pods", "list"},
		{"", "nodes", "list"},
		{"coordination.k8s.io", "leases", "update"},
		{"", "events", "create"},
	}
	switch first(setting(d, "capacity-backend"), "auto") {
	case "nodeclaim":
		out = append(out, right{"karpenter.sh", "nodeclaims", "create"}, right{"karpenter.sh", "nodeclaims", "delete"})
	case "nodepool":
		out = append(out, right{"karpenter.sh", "nodepools", "create"}, right{"karpenter.sh", "nodepools", "delete"})
	}
	return out
}

// checkPermissions compares the roles bound to the controller with its required rights.
func checkPermissions(e *examination) {
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment", "ServiceAccount"} {
		if !e.snapshot.isRead(kind) {
			return
		}
	}
	for _, d := range e.controllers() {
		account := d.Spec.Template.Spec.ServiceAccountName
		object := named("ServiceAccount", d.Namespace, account)
		if e.snapshot.find("ServiceAccount", d.Namespace, account) == nil {
			e.fail("ServiceAccountMissing", object, "the pods of Deployment "+d.Name+" name it, but it does not exist", install)
			continue
		}
		rules := e.rules(d.Namespace, account)
		if len(rules) == 0 {
			e.fail("ControllerHasNoRole", object, "no binding grants it any rules", install)
			continue
		}
		var missing []string
		for _, needed := range rights(&d) {
			if !slices.ContainsFunc(rules, needed.isIn) {
				missing = append(missing, needed.String())
			}
		}
		if len(missing) > 0 {
			e.fail("PermissionMissing", object, "it may not "+strings.Join(missing, ", "),
				install+fmt.Sprintf("  # restores the roles of %s", d.Name))
		}
	}
}

// isIn reports whether a rule grants the right. Rules for single resource names count only for leases.
func (r right) isIn(rule rbacv1.PolicyRule) bool {
	return has(rule.APIGroups, r.group) && has(rule.Resources, r.resource) && has(rule.Verbs, r.verb) && len(rule.ResourceNames) == 0 ||
		r.resource == "leases" && has(rule.APIGroups, r.group) && has(rule.Resources, r.resource) && has(rule.Verbs, r.verb)
}

func has(values []string, value string) bool {
	return slices.Contains(values, value) || slices.Contains(values, "*")
}

// rules returns the rules of all roles that are bound to a ServiceAccount, in any namespace.
func (e *examination) rules(namespace, account string) []rbacv1.PolicyRule {
	names := map[string]bool{}
	bind := func(kind, namespaceOf string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		isOurs := func(s rbacv1.Subject) bool {
			return s.Kind == "ServiceAccount" && s.Name == account && (s.Namespace == namespace || s.Namespace == "" &&
				namespaceOf == namespace)
		}
		if !slices.ContainsFunc(subjects, isOurs) {
			return
		}
		if ref.Kind == "ClusterRole" {
			kind, namespaceOf = "ClusterRole", ""
		}
		names[named(kind, namespaceOf, ref.Name)] = true
	}
	for _, b := range typed[rbacv1.ClusterRoleBinding](e.snapshot, "ClusterRoleBinding") {
		bind("ClusterRole", "", b.RoleRef, b.Subjects)
	}
	for _, b := range typed[rbacv1.RoleBinding](e.snapshot, "RoleBinding") {
		bind("Role", b.Namespace, b.RoleRef, b.Subjects)
	}
	var out []rbacv1.PolicyRule
	for _, role := range typed[rbacv1.ClusterRole](e.snapshot, "ClusterRole") {
		if names[named("ClusterRole", "", role.Name)] {
			out = append(out, role.Rules...)
		}
	}
	for _, role := range typed[rbacv1.Role](e.snapshot, "Role") {
		if names[named("Role", role.Namespace, role.Name)] {
			out = append(out, role.Rules...)
		}
	}
	return out
}
