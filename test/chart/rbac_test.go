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

// installations are those that differ in what the controller may do.
func installations() []string {
	return []string{
		"clouds={azure}", "clouds={aws}", "clouds={azure},capacity.backend=nodepool",
		"clouds={azure},capacity.backend=nodepool,capacity.staticNodePools=true",
		"clouds={azure},capacity.backend=pods", "clouds={azure},capacity.backend=existing",
	}
}

// TestPrivilegesHaveReasons compares docs/reference/rbac.md with the roles that the chart gives the controller: every verb
// is there with a reason, and no other.
func TestPrivilegesHaveReasons(t *testing.T) {
	granted := map[string]bool{}
	for _, values := range installations() {
		rendered, err := template(t, "--values", "testdata/minimal.values.yaml", "--set="+values)
		if err != nil {
			t.Fatal(err)
		}
		for _, role := range find[*rbacv1.ClusterRole](t, rendered) {
			if isForPeople := len(role.Labels) > 0 && strings.HasPrefix(aggregated(role), "aggregate"); !isForPeople {
				collect(granted, role.Rules)
			}
		}
		for _, role := range find[*rbacv1.Role](t, rendered) {
			collect(granted, role.Rules)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(granted)), documented(t)); diff != "" {
		t.Errorf("docs/reference/rbac.md differs from the chart's roles (-chart +page):\n%s", diff)
	}
}

// aggregated names the role for people that a role adds to; empty where it adds to none.
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

// documented are the privileges that the page's tables give a reason for: resource, verbs, reason.
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
