// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// indexer records its indexes.
type indexer struct {
	mu     *sync.Mutex
	fields map[string]client.IndexerFunc
}

func newIndexer() indexer { return indexer{&sync.Mutex{}, map[string]client.IndexerFunc{}} }

func (i indexer) IndexField(_ context.Context, _ client.Object, field string, value client.IndexerFunc) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fields[field] = value
	return nil
}

// TestListsByLabelUseTheIndex checks that only lists by an indexed label use the index.
func TestListsByLabelUseTheIndex(t *testing.T) {
	of := func(name, workspace string) *corev1.Pod {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = "team-a", name
		pod.Labels = map[string]string{v1beta1.LabelWorkspace: workspace, "colour": "blue"}
		return pod
	}
	field := indexOf(v1beta1.LabelWorkspace)
	var asked string
	inner := fake.NewClientBuilder().WithObjects(of("chat-0", "chat"), of("talk-0", "talk")).
		WithIndex(&corev1.Pod{}, field, valueOf(v1beta1.LabelWorkspace)).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				asked = ""
				if selector := (&client.ListOptions{}).ApplyOptions(options).FieldSelector; selector != nil {
					asked = selector.String()
				}
				return c.List(ctx, list, options...)
			},
		}).Build()
	made := newIndexer()
	c, err := indexed(t.Context(), inner, made, []labelled{{&corev1.Pod{}, []string{v1beta1.LabelWorkspace}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := made.fields[field](of("chat-0", "chat")); !cmp.Equal(got, []string{"chat"}) {
		t.Errorf("a pod is indexed by %q, want by its Workspace", got)
	}
	if got := made.fields[field](&corev1.Pod{}); got != nil {
		t.Errorf("a pod without the label is indexed by %q", got)
	}
	some, err := labels.Parse(v1beta1.LabelWorkspace + " in (chat,talk)")
	if err != nil {
		t.Fatal(err)
	}
	byName := client.MatchingLabels{v1beta1.LabelWorkspace: "chat"}
	bare := &metav1.PartialObjectMetadataList{}
	bare.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	for _, test := range []struct {
		reason  string
		into    client.ObjectList
		options []client.ListOption
		asked   string
		want    []string
	}{
		{"by the label", &corev1.PodList{}, []client.ListOption{byName}, field + "=chat", []string{"chat-0"}},
		{"by the label in a namespace", &corev1.PodList{}, []client.ListOption{client.InNamespace("team-b"), byName}, field + "=chat", nil},
		{
			"by the label and another one", &corev1.PodList{},
			[]client.ListOption{byName, client.MatchingLabels{"colour": "red"}},
			field + "=chat", nil,
		},
		{
			"by another label", &corev1.PodList{},
			[]client.ListOption{client.MatchingLabels{"colour": "blue"}},
			"",
			[]string{"chat-0", "talk-0"},
		},
		{
			"by several values", &corev1.PodList{},
			[]client.ListOption{client.MatchingLabelsSelector{Selector: some}},
			"",
			[]string{"chat-0", "talk-0"},
		},
		{
			"by no value, which has no index", &corev1.PodList{},
			[]client.ListOption{client.MatchingLabels{v1beta1.LabelWorkspace: ""}},
			"", nil,
		},
		{"metadata only, of which there is another cache", bare, []client.ListOption{byName}, "", []string{"chat-0"}},
		{"all", &corev1.PodList{}, nil, "", []string{"chat-0", "talk-0"}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if err := c.List(t.Context(), test.into, test.options...); err != nil {
				t.Fatal(err)
			}
			var got []string
			err := meta.EachListItem(test.into, func(item runtime.Object) error {
				named, err := meta.Accessor(item)
				if err == nil {
					got = append(got, named.GetName())
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" || asked != test.asked {
				t.Errorf("asked for %q, want %q; (-want +got):\n%s", asked, test.asked, diff)
			}
		})
	}
}
