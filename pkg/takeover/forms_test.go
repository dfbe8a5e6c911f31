// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/takeover"
)

// TestFormsOfStoredObjects: each stored NodePool and NodeClaim matches its own Workspace and no other.
func TestFormsOfStoredObjects(t *testing.T) {
	workspaces := []types.NamespacedName{
		{Namespace: "default", Name: "one"},
		{Namespace: "default", Name: "two"},
		{Namespace: "default", Name: "set-wqbcv"},
		{Namespace: "default", Name: "gpuprov"},
		{Namespace: "other", Name: "one"},
		{Namespace: "default", Name: "set"},
	}
	isOf := func(object *unstructured.Unstructured, ws types.NamespacedName) bool {
		switch object.GetKind() {
		case "NodePool":
			return takeover.IsPool(object, ws)
		case "NodeClaim":
			return takeover.IsPoolClaim(object, ws) != takeover.IsAgentClaim(object, ws)
		default:
			return false
		}
	}
	found := map[types.NamespacedName]int{}
	for _, object := range storedObjects(t) {
		for _, ws := range workspaces {
			if isOf(&object, ws) {
				found[ws]++
			}
		}
	}
	want := map[types.NamespacedName]int{workspaces[0]: 2, workspaces[1]: 3, workspaces[2]: 2, workspaces[3]: 1}
	for _, ws := range workspaces {
		if found[ws] != want[ws] {
			t.Errorf("%s: %d machines and pools, want %d", ws, found[ws], want[ws])
		}
	}
}

func TestIsPool(t *testing.T) {
	long := types.NamespacedName{Namespace: strings.Repeat("n", 40), Name: strings.Repeat("w", 40)}
	short := types.NamespacedName{Namespace: "a", Name: "b-c"}
	pool := func(name string, ws types.NamespacedName, more ...string) *unstructured.Unstructured {
		labels := map[string]string{
			takeover.LabelManagedBy: takeover.ManagedBy, "karpenter.kaito.sh/workspace-name": ws.Name,
			"karpenter.kaito.sh/workspace-namespace": ws.Namespace,
		}
		for i := 0; i < len(more); i += 2 {
			labels[more[i]] = more[i+1]
		}
		out := &unstructured.Unstructured{Object: map[string]any{}}
		out.SetName(name)
		out.SetLabels(labels)
		return out
	}
	for _, test := range []struct {
		reason string
		object metav1.Object
		of     types.NamespacedName
		want   bool
	}{
		{"name and labels", pool("a-b-c", short), short, true},
		{"a name that two Workspaces share, with the labels of the other", pool("a-b-c", types.NamespacedName{Namespace: "a-b", Name: "c"}), short, false},
		{"another name", pool("general", short), short, false},
		{"another manager", pool("a-b-c", short, takeover.LabelManagedBy, "platform"), short, false},
		{"one of ours", pool("a-b-c", short, "modelberth.dev/workspace-uid", "1"), short, false},
		{"a long name, shortened", pool((long.Namespace + "-" + long.Name)[:53]+"-012345678", long), long, true},
		{"a long name, shortened in another way", pool((long.Namespace + "-" + long.Name)[:53]+"-notahash9", long), long, false},
		{"a long name of another Workspace", pool(strings.Repeat("x", 53)+"-012345678", long), long, false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := takeover.IsPool(test.object, test.of); got != test.want {
				t.Errorf("IsPool(%s) = %v, want %v", test.object.GetName(), got, test.want)
			}
		})
	}
}
