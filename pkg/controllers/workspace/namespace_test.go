// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/progress"
)

// A ceiling of a namespace that cannot be read is a condition: it is neither none nor the usual one.
func TestUnreadableCeilingIsNotNone(t *testing.T) {
	usual := ledger.Ceilings{Workspace: 150, Namespace: 300, Cluster: 600}
	price := func(of float64) ledger.Ceilings {
		return ledger.Ceilings{Workspace: 150, Namespace: of, Cluster: 600, IsNamespaceOwn: true}
	}
	tests := []struct {
		reason      string
		annotations map[string]string
		want        ledger.Ceilings
		invalid     bool
	}{
		{"no annotation", map[string]string{"a": "b"}, usual, false},
		{"a whole price", map[string]string{v1beta1.AnnotationSpendingCeiling: "50"}, price(50), false},
		{"a price with cents, above the usual one", map[string]string{v1beta1.AnnotationSpendingCeiling: "450.5"}, price(450.5), false},
		{"empty", map[string]string{v1beta1.AnnotationSpendingCeiling: ""}, usual, true},
		{"nothing", map[string]string{v1beta1.AnnotationSpendingCeiling: "0"}, usual, true},
		{"below nothing", map[string]string{v1beta1.AnnotationSpendingCeiling: "-1"}, usual, true},
		{"with its currency", map[string]string{v1beta1.AnnotationSpendingCeiling: "50 USD"}, usual, true},
		{"a word", map[string]string{v1beta1.AnnotationSpendingCeiling: "unlimited"}, usual, true},
		{"what Go reads as a number", map[string]string{v1beta1.AnnotationSpendingCeiling: "Inf"}, usual, true},
		{"what no person means", map[string]string{v1beta1.AnnotationSpendingCeiling: "5e9"}, usual, true},
		{"with a comma", map[string]string{v1beta1.AnnotationSpendingCeiling: "1,5"}, usual, true},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			r := &Reconciler{Config: Config{Ledger: ledger.New(usual, nil)}}
			ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat"}}
			got, err := r.ceilings(&scope{ws: ws, namespace: metav1.ObjectMeta{Annotations: tt.annotations}})
			stalled, isStalled := errors.AsType[*progress.StalledError](err)
			if isStalled != tt.invalid || isStalled && stalled.Reason != v1beta1.ReasonSpendingCeilingInvalid {
				t.Errorf("error: got %v, want one of the condition: %t", err, tt.invalid)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ceilings (-want +got):\n%s", diff)
			}
		})
	}
}
