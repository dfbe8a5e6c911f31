// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rarelyUsed are privileges that the tests before this one need not lead to, and why the controller
// has them.
func rarelyUsed() map[string]string {
	return map[string]string{
		"kaito.sh workspaces/finalizers update":               "asked for by clusters that check who may block an owner's deletion",
		"kaito.sh workspaces get":                             "when a machine is left of a Workspace that is gone",
		"apps controllerrevisions delete":                     "a Workspace keeps its latest ten",
		"apps controllerrevisions get":                        "when two replicas make the same one",
		" services get":                                       "when somebody was first to make one of that name",
		"apps statefulsets get":                               "when somebody was first to make one of that name",
		"apps deployments get":                                "when KAITO's controller served a Workspace before",
		"networking.k8s.io networkpolicies get":               "when somebody was first to make one of that name",
		"karpenter.sh nodeclaims get":                         "when a claim of that name exists already",
		" events patch":                                       "when an event happens again",
		" pods patch":                                         "when engines on several machines were held back until they are isolated",
		" configmaps list":                                    "client-go may watch without",
		"coordination.k8s.io leases create":                   "once for each installation",
		"apiextensions.k8s.io customresourcedefinitions list": "client-go may watch without",
		"kaito.sh workspaces list":                            "client-go may watch without",
		"karpenter.sh nodeclaims list":                        "client-go may watch without",
		" limitranges list":                                   "client-go may watch without",
		" namespaces list":                                    "client-go may watch without",
		" nodes list":                                         "client-go may watch without",
		" pods list":                                          "client-go may watch without",
		" resourcequotas list":                                "client-go may watch without",
		" services list":                                      "client-go may watch without",
		"apps statefulsets list":                              "client-go may watch without",
		"networking.k8s.io networkpolicies list":              "client-go may watch without",
		"policy poddisruptionbudgets list":                    "client-go may watch without",
		"policy poddisruptionbudgets create":                  "where several pods each serve",
		"policy poddisruptionbudgets patch":                   "where several pods each serve",
		"policy poddisruptionbudgets get":                     "where several pods each serve",
		"apps controllerrevisions list":                       "client-go may watch without",
	}
}

// expectPrivileges compares what the controller was allowed with what it asked for in all tests so
// far: nothing was refused, and no privilege lies idle.
func expectPrivileges(t *testing.T) {
	requests, err := auditLog()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, r := range requests {
		used[r.what()] = true
		if r.Verb == "patch" && r.ResponseStatus.Code == http.StatusCreated {
			r.Verb = "create" // what an apply is authorised as where there is no such object yet
			used[r.what()] = true
		}
		if r.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("the controller was refused: %s %s/%s", r.what(), r.ObjectRef.Namespace, r.ObjectRef.Name)
		}
	}
	granted := grants(t)
	var idle []string
	for privilege := range granted {
		if !used[privilege] && rarelyUsed()[privilege] == "" {
			idle = append(idle, privilege)
		}
	}
	slices.Sort(idle)
	if len(idle) > 0 {
		t.Errorf("privileges of the chart that no test made use of:\n%s", strings.Join(idle, "\n"))
	}
	for privilege := range rarelyUsed() {
		if !granted[privilege] {
			t.Errorf("%q is excused and not granted any more: take it off the list", privilege)
		}
	}
}

// grants lists what the controller's roles allow.
func grants(t *testing.T) map[string]bool {
	t.Helper()
	cluster, own, events := &rbacv1.ClusterRole{}, &rbacv1.Role{}, &rbacv1.Role{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Name: release}, cluster); err != nil {
		t.Fatal(err)
	}
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: systemNamespace, Name: release}, own); err != nil {
		t.Fatal(err)
	}
	eventsKey := types.NamespacedName{Namespace: "default", Name: release + "-nodeclaim-events"}
	if err := local.client.Get(t.Context(), eventsKey, events); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, rule := range slices.Concat(cluster.Rules, own.Rules, events.Rules) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out[strings.Join([]string{group, resource, verb}, " ")] = true
				}
			}
		}
	}
	return out
}
