// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"

	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// TestNothingBeginsWithUnverifiedWeights requires signatures after a plan with unverified weights was accepted. Serving
// models continue, but no machine is bought and no pod starts.
func TestNothingBeginsWithUnverifiedWeights(t *testing.T) {
	der, err := x509.MarshalPKIXPublicKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public())
	if err != nil {
		t.Fatal(err)
	}
	signers, err := cosign.ParseKeys(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	if err != nil {
		t.Fatal(err)
	}
	bought := planner.Plan{InstanceType: "A", Nodes: 2, HourlyPrice: 2}
	onNodes := planner.Plan{NodeNames: []string{"node-1"}, Nodes: 1}
	for _, test := range []struct {
		reason string
		plan   planner.Plan
		held   int
		runs   string
		// forbidden means that no machine may be bought, and stalled that no pod may start.
		forbidden, stalled bool
	}{
		{"it serves from its machines", bought, 2, "chat-1", false, false},
		{"one of its machines is lost", bought, 1, "chat-1", true, false},
		{"it has machines and no pods yet", bought, 2, "", true, true},
		{"pods of an edit run on its machines", bought, 2, "chat-2", true, true},
		{"nothing is there", bought, 0, "", true, true},
		{"it serves from an existing node", onNodes, 0, "chat-1", false, false},
		{"it is to serve from an existing node", onNodes, 0, "", true, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			books := account{}
			r := New(Config{
				Provisioner: books, Ledger: ledger.New(books), Signatures: planning.Signatures{Signers: signers},
				Planner: ranked{bought}, Catalog: typesCatalog{plans: ranked{bought}}, Memory: &cooldown.Memory{},
				Clock: testclock.NewFakePassiveClock(now.Time),
			})
			ws := workspaceObject()
			ws.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "phi-4"}, Weights: &v1beta1.WeightsSource{
				OCI: &v1beta1.OCIWeights{Reference: "a.example/model:v1"},
			}}
			s := scope.New(ws)
			s.Revision = &revision.Revision{Name: "chat-1", Revision: render.Revision{Plan: test.plan}}
			names := []string{"chat-aaaa", "chat-bbbb"}
			begin(s, s.Revision, 1, names, now.Time)
			for _, name := range names[:test.held] {
				s.Machines = append(s.Machines, capacity.Machine{Name: name, InstanceType: "A"})
			}
			if test.runs != "" {
				s.StatefulSet = pinnedSet(0)
				s.StatefulSet.Annotations[v1beta1.AnnotationRevision] = test.runs
			}
			if err := r.noteUnverified(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if _, why := r.executor.Choice(s).Today(s.Revision); (why != "") != test.forbidden {
				t.Errorf("nothing may be bought because %q, want a reason: %v", why, test.forbidden)
			}
			stalled, isStalled := errors.AsType[*progress.StalledError](s.CheckVerified())
			if isStalled != test.stalled || isStalled && stalled.Reason != v1beta1.ReasonWeightsNotVerified {
				t.Errorf("pods begin: %v, want stalled: %v", stalled, test.stalled)
			}
		})
	}
}
