// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/nodepool"
)

// labelled is a kind of object, with the labels to index.
type labelled struct {
	object client.Object
	labels []string
}

// looksUp returns the kinds that a pass lists by the label of its Workspace. Without an index, a cache compares the
// labels of all its objects, and the cost of a pass grows with the number of Workspaces.
func looksUp(served kinds) []labelled {
	out := []labelled{
		{&corev1.Pod{}, []string{v1beta1.LabelWorkspace}},
		{&appsv1.StatefulSet{}, []string{v1beta1.LabelWorkspace}},
		{&discoveryv1.EndpointSlice{}, []string{discoveryv1.LabelServiceName}},
		{&corev1.Node{}, []string{v1beta1.LabelWorkspaceUID}},
		{&appsv1.ControllerRevision{}, []string{v1beta1.LabelRevisionOwner}},
	}
	if served.has(nodeClaimKind()) {
		out = append(out, labelled{nodeclaim.Object(), []string{v1beta1.LabelWorkspaceUID, v1beta1.LabelMachineWorkspaceName}})
	}
	if served.has(nodePoolKind()) {
		out = append(out, labelled{nodepool.Object(), []string{v1beta1.LabelWorkspaceUID, v1beta1.LabelMachineWorkspaceName}})
	}
	return out
}

// byLabel is a cached client that uses an index for lists by an indexed label.
type byLabel struct {
	client.Client
	labels map[schema.GroupKind][]string
}

// indexed registers the indexes, and returns a client that uses them.
func indexed(ctx context.Context, inner client.Client, indexer client.FieldIndexer, all []labelled) (client.Client, error) {
	out := byLabel{Client: inner, labels: map[schema.GroupKind][]string{}}
	for _, kind := range all {
		gvk, err := inner.GroupVersionKindFor(kind.object)
		if err != nil {
			return nil, fmt.Errorf("indexing %T: %w", kind.object, err)
		}
		for _, label := range kind.labels {
			if err := indexer.IndexField(ctx, kind.object, indexOf(label), valueOf(label)); err != nil {
				return nil, fmt.Errorf("indexing %s by label %s: %w", gvk.Kind, label, err)
			}
		}
		out.labels[gvk.GroupKind()] = kind.labels
	}
	return out, nil
}

// List implements client.Reader. Lists without an indexed label bypass the indexes. So do lists of another Go type,
// because they use another cache or none.
func (c byLabel) List(ctx context.Context, list client.ObjectList, asked ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(asked)
	_, isBare := list.(*metav1.PartialObjectMetadataList)
	_, isUntyped := list.(runtime.Unstructured)
	if options.LabelSelector == nil || options.FieldSelector != nil || isBare || isUntyped {
		return c.Client.List(ctx, list, options)
	}
	gvk, err := c.GroupVersionKindFor(list)
	if err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	for _, label := range c.labels[schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}] {
		if value, isExact := options.LabelSelector.RequiresExactMatch(label); isExact && value != "" {
			options.FieldSelector = fields.OneTermEqualSelector(indexOf(label), value)
			break
		}
	}
	return c.Client.List(ctx, list, options)
}

func indexOf(label string) string { return "metadata.labels." + label }

func valueOf(label string) client.IndexerFunc {
	return func(object client.Object) []string {
		if value := object.GetLabels()[label]; value != "" {
			return []string{value}
		}
		return nil
	}
}
