// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/crd"
)

// lacking is a definition as its cache keeps it.
func lacking(missing string) client.Object {
	out := crd.Object()
	out.SetName(crd.Workspaces)
	out.SetAnnotations(map[string]string{"modelberth.dev/missing-fields": missing})
	return out
}

// TestPrunedObjectsAreLookedAt: an API server need not send the objects again when their definition changes.
func TestPrunedObjectsAreLookedAt(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	at := site{cached: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "chat"}},
		&v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "code"}},
		&v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "fleet"}},
	).Build()}
	tests := []struct {
		reason     string
		definition client.Object
		list       client.ObjectList
		want       []types.NamespacedName
	}{
		{"a whole definition is no news", lacking(""), &v1beta1.WorkspaceList{}, nil},
		{"every Workspace", lacking("suspend"), &v1beta1.WorkspaceList{}, []types.NamespacedName{
			{Namespace: "a", Name: "chat"}, {Namespace: "b", Name: "code"},
		}},
		{"every InferenceSet", lacking("suspend"), &v1beta1.InferenceSetList{}, []types.NamespacedName{{Namespace: "a", Name: "fleet"}}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, at.whilePruned(t.Context(), test.definition, test.list)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsRestored(t *testing.T) {
	tests := []struct {
		reason        string
		before, after string
		want          bool
	}{
		{"the caches hold pruned objects", "status,suspend", "", true},
		{"another field is still missing", "status,suspend", "suspend", false},
		{"nothing was missing", "", "", false},
		{"fields go missing", "", "suspend", false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := isRestored(lacking(test.before), lacking(test.after)); got != test.want {
				t.Errorf("restored: %v, want %v", got, test.want)
			}
		})
	}
}
