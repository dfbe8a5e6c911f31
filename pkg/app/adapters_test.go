// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/controllers/workspace"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/presets"
)

// TestHubNeedsPermission checks that a controller without permission to query the hub has no client for it.
func TestHubNeedsPermission(t *testing.T) {
	known, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatal(err)
	}
	for _, mayAsk := range []bool{false, true} {
		o := options.Controller{HubEndpoint: "https://hub.example", DescribeModels: mayAsk, Workers: 1}
		r, err := newReconciler(known, workspace.Config{Clock: clock.RealClock{}}, o, absent)
		if err != nil {
			t.Fatal(err)
		}
		if (r.Hub != nil) != mayAsk || (r.AdapterRanks != nil) != mayAsk {
			t.Errorf("with leave %v: models are asked for: %v, ranks: %v", mayAsk, r.Hub != nil, r.AdapterRanks != nil)
		}
	}
}
