// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package kaito_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/pkg/capacity/kaito"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

// machine returns one of Karpenter's objects with labels, given as keys and values in turn.
func machine(kind, name string, labels ...string) client.Object {
	out := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}}}
	out.SetGroupVersionKind(nodeclaim.GroupVersion().WithKind(kind))
	for pair := range slices.Chunk(labels, 2) {
		out.Labels[pair[0]] = pair[1]
	}
	return out
}

func pool(namespace, workspace string, more ...string) client.Object {
	return machine("NodePool", namespace+"-"+workspace, append([]string{
		"karpenter.kaito.sh/workspace-namespace", namespace, "karpenter.kaito.sh/workspace-name", workspace,
	}, more...)...)
}

func poolClaim(namespace, workspace string, more ...string) client.Object {
	return machine("NodeClaim", "c", append([]string{
		"karpenter.kaito.sh/workspace-namespace", namespace, "karpenter.kaito.sh/workspace-name", workspace,
		"karpenter.sh/nodepool", namespace + "-" + workspace,
	}, more...)...)
}

func agentClaim(namespace, workspace string, more ...string) client.Object {
	return machine("NodeClaim", "c", append([]string{
		"kaito.sh/workspacenamespace", namespace, "kaito.sh/workspace", workspace, "karpenter.sh/nodepool", "kaito",
	}, more...)...)
}

// kinds returns the kinds of a cluster with Karpenter.
func kinds() []schema.GroupKind {
	return []schema.GroupKind{{Group: "karpenter.sh", Kind: "NodePool"}, {Group: "karpenter.sh", Kind: "NodeClaim"}}
}

func clusterOf(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds() {
		scheme.AddKnownTypeWithName(nodeclaim.GroupVersion().WithKind(kind.Kind), &metav1.PartialObjectMetadata{})
		scheme.AddKnownTypeWithName(nodeclaim.GroupVersion().WithKind(kind.Kind+"List"), &metav1.PartialObjectMetadataList{})
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper()).WithObjects(objects...).Build()
}

func both(cluster client.Client) kaito.Caches[client.Reader] {
	return kaito.Caches[client.Reader]{Main: cluster, PoolClaims: cluster}
}

func mapper() meta.RESTMapper {
	out := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds() {
		out.Add(nodeclaim.GroupVersion().WithKind(kind.Kind), meta.RESTScopeRoot)
	}
	return out
}

func remaining(t *testing.T, cluster client.Client) []string {
	t.Helper()
	var out []string
	for _, kind := range kinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(nodeclaim.GroupVersion().WithKind(kind.Kind + "List"))
		if err := cluster.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			out = append(out, kind.Kind+" "+list.Items[i].Name)
		}
	}
	return out
}

func TestReleaseTakesOnlyWhatKAITOHoldsForTheWorkspace(t *testing.T) {
	const byKAITO, uid, managed = "karpenter.kaito.sh/managed-by", "modelberth.dev/workspace-uid", "app.kubernetes.io/managed-by"
	tests := []struct {
		reason string
		object client.Object
		goes   bool
	}{
		{"the NodePool of karpenter mode", pool("ns", "chat", byKAITO, "kaito"), true},
		{"its NodeClaim", poolClaim("ns", "chat"), true},
		{"a NodeClaim of gpu-provisioner mode", agentClaim("ns", "chat"), true},
		{"the NodePool of a Workspace of that name elsewhere", pool("other", "chat", byKAITO, "kaito"), false},
		{"the NodePool of another Workspace", pool("ns", "chat-2", byKAITO, "kaito"), false},
		{"a NodePool that somebody else made", pool("ns", "chat"), false},
		{
			"a NodePool of another name, with KAITO's labels", machine("NodePool", "shared", byKAITO, "kaito",
				"karpenter.kaito.sh/workspace-namespace", "ns", "karpenter.kaito.sh/workspace-name", "chat"), false,
		},
		{
			"the NodePool of a Workspace whose names make the same name", machine("NodePool", "ns-chat", byKAITO, "kaito",
				"karpenter.kaito.sh/workspace-namespace", "n", "karpenter.kaito.sh/workspace-name", "s-chat"), false,
		},
		{"a NodeClaim of another NodePool, with KAITO's labels", poolClaim("ns", "chat", "karpenter.sh/nodepool", "shared"), false},
		{"a NodeClaim of a NodePool, with gpu-provisioner's labels", agentClaim("ns", "chat", "karpenter.sh/nodepool", "shared"), false},
		{"the NodeClaim of another Workspace", poolClaim("ns", "other"), false},
		{"the NodeClaim of a Workspace of that name elsewhere, in karpenter mode", poolClaim("other", "chat"), false},
		{"the NodeClaim of another Workspace, in gpu-provisioner mode", agentClaim("ns", "other"), false},
		{"the NodeClaim of a Workspace of that name elsewhere", agentClaim("other", "chat"), false},
		{"a NodeClaim of this controller's, for Karpenter", poolClaim("ns", "chat", uid, "1"), false},
		{"a NodeClaim of this controller's, for gpu-provisioner", agentClaim("ns", "chat", uid, "1"), false},
		{"a NodeClaim of this controller's, without its UID", agentClaim("ns", "chat", managed, "modelberth"), false},
		{"a NodePool of this controller's", pool("ns", "chat", byKAITO, "kaito", uid, "1"), false},
		{"a NodeClaim without a namespace", machine("NodeClaim", "c", "kaito.sh/workspace", "chat"), false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			cluster := clusterOf(t, test.object)
			held := remaining(t, cluster)
			machines := kaito.New(both(cluster), cluster, cluster, kinds())
			left, err := machines.Release(t.Context(), types.NamespacedName{Namespace: "ns", Name: "chat"})
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if test.goes {
				want, held = held, nil
			}
			if diff := cmp.Diff(want, left); diff != "" {
				t.Errorf("released (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(held, remaining(t, cluster)); diff != "" {
				t.Errorf("remaining (-want +got):\n%s", diff)
			}
			if left, err = machines.Release(t.Context(), types.NamespacedName{Namespace: "ns", Name: "chat"}); err != nil || len(left) > 0 {
				t.Errorf("released again: %v, error %v; want nothing", left, err)
			}
		})
	}
}

// TestReleaseFailsBeforeClaims leaves the NodeClaims to a NodePool that cannot be deleted: it would replace them.
func TestReleaseFailsBeforeClaims(t *testing.T) {
	cluster := clusterOf(t, pool("ns", "chat", "karpenter.kaito.sh/managed-by", "kaito"), poolClaim("ns", "chat"))
	refused := errors.New("refused")
	writer := interceptor.NewClient(cluster, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return refused },
	})
	left, err := kaito.New(both(cluster), cluster, writer, kinds()).Release(t.Context(), types.NamespacedName{Namespace: "ns", Name: "chat"})
	if !errors.Is(err, refused) || !slices.Equal(left, []string{"NodePool ns-chat"}) {
		t.Errorf("left %v, error %v; want the NodePool, and the refusal", left, err)
	}
	if diff := cmp.Diff([]string{"NodePool ns-chat", "NodeClaim c"}, remaining(t, cluster)); diff != "" {
		t.Errorf("remaining (-want +got):\n%s", diff)
	}
}

// TestReleaseReadsOnlyServedKinds: Release reads no kind that the cluster does not serve.
func TestReleaseReadsOnlyServedKinds(t *testing.T) {
	cluster := clusterOf(t, agentClaim("ns", "chat"))
	claimsOnly := interceptor.NewClient(cluster, interceptor.Funcs{
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if kind := list.GetObjectKind().GroupVersionKind().Kind; kind != "NodeClaimList" {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}}
			}
			return inner.List(ctx, list, options...)
		},
	})
	machines := kaito.New(both(claimsOnly), claimsOnly, claimsOnly, kinds()[1:])
	left, err := machines.Release(t.Context(), types.NamespacedName{Namespace: "ns", Name: "chat"})
	if err != nil || !slices.Equal(left, []string{"NodeClaim c"}) {
		t.Errorf("left %v, error %v; want the NodeClaim", left, err)
	}
}
