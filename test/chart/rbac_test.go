// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

// installations differ in the privileges of the controller.
func installations() []string {
	return []string{
		"clouds={azure}", "clouds={aws}", "clouds={azure},capacity.backend=nodepool",
		"clouds={azure},capacity.backend=nodepool,capacity.staticNodePools=true",
		"clouds={azure},capacity.backend=pods", "clouds={azure},capacity.backend=existing", "clouds={azure},cost.enabled=true",
		"clouds={azure},router.enabled=true,router.image.repository=x,router.gateway.enabled=true,router.gateway.name=g,router.gateway.namespace=n",
	}
}

// TestPrivilegesHaveReasons compares docs/reference/rbac.md with the controller's roles: the page has a reason for each
// verb, and no further verbs.
func TestPrivilegesHaveReasons(t *testing.T) {
	granted := map[string]bool{}
	for _, values := range installations() {
		cluster, namespaced := grants(t, values)
		maps.Copy(granted, cluster)
		maps.Copy(granted, namespaced)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(granted)), documented(t)); diff != "" {
		t.Errorf("docs/reference/rbac.md differs from the chart's roles (-chart +page):\n%s", diff)
	}
}

// TestWatchedNamespacesLeaveLittleToTheClusterRole: with watchNamespaces, the controller has the same privileges, but
// none on namespaced objects elsewhere, except those set by the administrator.
func TestWatchedNamespacesLeaveLittleToTheClusterRole(t *testing.T) {
	const pods = "pods list, pods watch"
	for _, values := range installations() {
		for _, of := range []struct{ more, want string }{
			{"", "daemonsets.apps list"},
			{",capacity.gpuPluginCheck=false,capacity.dedicatedTaint=Disabled", ""},
			{",capacity.gpuPluginCheck=false,capacity.dedicatedTaint=Disabled,watchPodsOfNodes=true", pods},
		} {
			isExisting := strings.Contains(values, "backend=existing")
			if isExisting && !strings.Contains(of.more, "watchPodsOfNodes") {
				continue // which the chart refuses
			}
			if strings.Contains(values, "backend=pods") && of.want == "daemonsets.apps list" {
				of.want = ""
			}
			t.Run(values+of.more, func(t *testing.T) {
				everywhere, _ := grants(t, values+of.more)
				cluster, namespaced := grants(t, values+of.more+",watchNamespaces={team-a}")
				var left []string
				for _, privilege := range slices.Sorted(maps.Keys(cluster)) {
					if resource, _, _ := strings.Cut(privilege, " "); !hasNoNamespace(resource) {
						left = append(left, privilege)
					}
				}
				if got := strings.Join(left, ", "); got != of.want {
					t.Errorf("the ClusterRole grants %q of what is in namespaces, want %q", got, of.want)
				}
				maps.Copy(namespaced, cluster)
				for privilege := range everywhere {
					if !namespaced[privilege] {
						t.Errorf("the Roles lack %s", privilege)
					}
				}
			})
		}
	}
}

// hasNoNamespace reports whether a resource is the cluster's.
func hasNoNamespace(resource string) bool {
	return strings.Contains(resource, "nodeclasses.") || slices.Contains([]string{
		"nodes", "namespaces", "nodeclaims.karpenter.sh", "nodepools.karpenter.sh", "customresourcedefinitions.apiextensions.k8s.io",
		"tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io",
	}, resource)
}

// grants are the controller's privileges in an installation, from its ClusterRole and from all Roles.
func grants(t *testing.T, values string) (cluster, namespaced map[string]bool) {
	t.Helper()
	rendered, err := template(t, "--values", "testdata/minimal.values.yaml", "--set="+values)
	if err != nil {
		t.Fatal(err)
	}
	cluster, namespaced = map[string]bool{}, map[string]bool{}
	for _, role := range find[*rbacv1.ClusterRole](t, rendered) {
		isForPeople := len(role.Labels) > 0 && strings.HasPrefix(aggregated(role), "aggregate")
		if !isForPeople && !isOfRouter(role.Labels) {
			collect(cluster, role.Rules)
		}
	}
	for _, role := range find[*rbacv1.Role](t, rendered) {
		if !isOfRouter(role.Labels) {
			collect(namespaced, role.Rules)
		}
	}
	return cluster, namespaced
}

// isOfRouter reports whether a role is the router's.
func isOfRouter(labels map[string]string) bool {
	return labels["app.kubernetes.io/name"] == "modelberth-router"
}

// aggregated names the target of an aggregated role; empty for other roles.
func aggregated(role *rbacv1.ClusterRole) string {
	for label := range role.Labels {
		if to, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/"); ok {
			return to
		}
	}
	return ""
}

func collect(into map[string]bool, rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					into[strings.TrimSuffix(resource+"."+group, ".")+" "+verb] = true
				}
			}
		}
	}
}

// documented are the privileges in the page's tables: resource, verbs, reason.
func documented(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/rbac.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") {
			continue
		}
		if strings.TrimSpace(cells[2]) == "" {
			t.Errorf("no reason: %s", line)
		}
		for verb := range strings.SplitSeq(cells[1], ",") {
			out = append(out, strings.Trim(strings.TrimSpace(cells[0]), "`")+" "+strings.TrimSpace(verb))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
