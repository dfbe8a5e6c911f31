// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/controllers/sweep"
	"github.com/modelberth/modelberth/pkg/options"
)

// runner is a manager that only records its runnables.
type runner struct {
	manager.Manager
	runs []manager.Runnable
}

// Add implements manager.Manager.
func (r *runner) Add(runs manager.Runnable) error {
	r.runs = append(r.runs, runs)
	return nil
}

// TestSweptBackEnds checks that the sweeper covers every back end that buys, and KAITO's machines only on request.
func TestSweptBackEnds(t *testing.T) {
	for _, chosen := range []backEnd{options.BackendNodeClaim, options.BackendNodePool} {
		for _, isTold := range []bool{false, true} {
			mgr := &runner{}
			o := options.Controller{SweepKAITO: isTold, NodeClasses: []v1beta1.NodeClassReference{{Group: "g", Kind: "K", Name: "n"}}}
			bought, _, err := newBackEnd(t.Context(), site{mgr: mgr, indexes: &indexes{}, served: kinds{nodeClaimKind(), nodePoolKind()}}, o, chosen)
			if err != nil || len(mgr.runs) != 1 {
				t.Fatalf("%s: %d things run beside the controllers, error %v; want the sweeper", chosen, len(mgr.runs), err)
			}
			sweeper, ok := mgr.runs[0].(*sweep.Sweeper)
			if !ok || sweeper.Machines != bought || sweeper.Clock == nil {
				t.Errorf("%s: %T does not sweep what was bought", chosen, mgr.runs[0])
			}
			if _, isKAITOs := sweeper.Strays.(nodeclaim.KAITO); isKAITOs != isTold {
				t.Errorf("%s, told to: %v; KAITO's are swept: %v", chosen, isTold, isKAITOs)
			}
		}
	}
}
