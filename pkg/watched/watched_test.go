// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watched_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/watched"
)

// machine returns a NodeClaim with the labels of this project or of KAITO.
func machine(name string, names map[string]string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(claims())
	out.SetName(name)
	out.SetLabels(names)
	return out
}

func claims() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"}
}

func machines() *unstructured.UnstructuredList {
	out := &unstructured.UnstructuredList{}
	out.SetGroupVersionKind(claims().GroupVersion().WithKind("NodeClaimList"))
	return out
}

// TestReaderWithRolesAlone: an account with only Roles may not list across namespaces. Machines of Workspaces in other
// namespaces must not look like machines without a Workspace.
func TestReaderWithRolesAlone(t *testing.T) {
	some := watched.Namespaces{"team-a", "team-b"}
	ours := map[string]string{v1beta1.LabelMachineWorkspaceNamespace: "team-a"}
	objects := []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "a"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "b", Labels: map[string]string{"app": "b"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-c", Name: "c"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{v1beta1.LabelMachineWorkspaceNamespace: "team-c"}}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "plugin"}},
		machine("claim-a", ours),
		machine("claim-c", map[string]string{v1beta1.LabelMachineWorkspaceNamespace: "team-c"}),
		machine("kaito-c", map[string]string{v1beta1.LabelWorkspaceNamespace: "team-c"}),
		machine("nobodys", nil),
	}
	tests := []struct {
		reason     string
		namespaces watched.Namespaces
		list       client.ObjectList
		options    []client.ListOption
		want, asks []string
	}{
		{"all namespaces at once", nil, &corev1.PodList{}, nil, []string{"a", "b", "c"}, []string{""}},
		{"one after the other", some, &corev1.PodList{}, nil, []string{"a", "b"}, []string{"team-a", "team-b"}},
		{"with a selector", some, &corev1.PodList{}, []client.ListOption{client.MatchingLabels{"app": "b"}}, []string{"b"}, []string{"team-a", "team-b"}},
		{"one that is named", some, &corev1.PodList{}, []client.ListOption{client.InNamespace("team-b")}, []string{"b"}, []string{"team-b"}},
		{"a kind without a namespace", watched.Namespaces{"team-a"}, &corev1.NodeList{}, nil, []string{"node"}, []string{""}},
		{"a kind of the whole cluster", watched.Namespaces{"team-a"}, &appsv1.DaemonSetList{}, nil, []string{"plugin"}, []string{""}},
		{"machines of everybody", nil, machines(), nil, []string{"claim-a", "claim-c", "kaito-c", "nobodys"}, []string{""}},
		{"machines of others", watched.Namespaces{"team-a"}, machines(), nil, []string{"claim-a", "nobodys"}, []string{""}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			var asks []string
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
			mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
			mapper.Add(claims(), meta.RESTScopeRoot)
			inner := fake.NewClientBuilder().WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					asks = append(asks, (&client.ListOptions{}).ApplyOptions(options).Namespace)
					return c.List(ctx, list, options...)
				},
			}).Build()
			reader := test.namespaces.Reader(inner, scheme.Scheme, mapper, &appsv1.DaemonSetList{})
			if err := reader.List(t.Context(), test.list, test.options...); err != nil {
				t.Fatal(err)
			}
			var got []string
			err := meta.EachListItem(test.list, func(item runtime.Object) error {
				object, err := meta.Accessor(item)
				if err == nil {
					got = append(got, object.GetName())
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.asks, asks); diff != "" {
				t.Errorf("namespaces that were asked for (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	some := watched.Namespaces{"team-a", "team-b"}
	if !some.Has("team-a") || some.Has("team-c") || !watched.Namespaces(nil).Has("team-c") {
		t.Error("a namespace is watched if it is named, or if none is")
	}
	tests := []struct {
		reason     string
		namespaces watched.Namespaces
		want       string
	}{
		{"all", nil, ""},
		{"some", some, "kubernetes.io/metadata.name in (team-a,team-b)"},
		{"a name that no namespace has", watched.Namespaces{"not a name"}, labels.Nothing().String()},
	}
	for _, test := range tests {
		if got := test.namespaces.Named().String(); got != test.want {
			t.Errorf("%s: selector %q, want %q", test.reason, got, test.want)
		}
	}
	var names []string
	for name := range some.Cached("default") {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"default", "team-a", "team-b"}, names); diff != "" {
		t.Errorf("namespaces of a cache (-want +got):\n%s", diff)
	}
	if got := watched.Namespaces(nil).Cached("default"); got != nil {
		t.Errorf("a cache of all namespaces is limited to %v", got)
	}
}
