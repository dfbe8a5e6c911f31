// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelberth/modelberth/pkg/router/models"
)

// TestConflicts: the metric shows the claimants of a name and its owner.
func TestConflicts(t *testing.T) {
	newer, twin := owner("a", "newer"), owner("b", "twin")
	newer.Names, newer.Created = []string{"old", "newer"}, time.Unix(2, 0)
	twin.Names, twin.Created = []string{"old"}, time.Unix(3, 0)
	registry := prometheus.NewRegistry()
	// A Workspace and a set in a namespace may have the same name, so twin occurs twice.
	registry.MustRegister(NewConflicts(directory{models.New([]models.Owner{twin, twin, newer, owner("a", "old")})}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			line := family.GetName()
			for _, label := range metric.GetLabel() {
				line += " " + label.GetName() + "=" + label.GetValue()
			}
			got = append(got, line)
		}
	}
	want := []string{
		"modelberth_router_shadowed_names model=a:newer name=old owner=a:old",
		"modelberth_router_shadowed_names model=b:twin name=old owner=a:old",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
