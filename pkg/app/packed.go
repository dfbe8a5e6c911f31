// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/workload"
)

// keepSet is the transform of the cache of StatefulSets.
func keepSet(object any) (any, error) {
	kept, err := apply.Keep(object)
	if err != nil {
		return nil, err
	}
	return workload.Pack(kept)
}

// unpacking is a cached client that unpacks StatefulSets (workload.Pack).
type unpacking struct{ client.Client }

// Get implements client.Reader.
func (c unpacking) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	if set, ok := object.(*appsv1.StatefulSet); ok {
		return workload.Unpack(set)
	}
	return nil
}

// List implements client.Reader. It replaces templates of the list's own copies only.
func (c unpacking) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := c.Client.List(ctx, list, options...); err != nil {
		return err
	}
	if sets, ok := list.(*appsv1.StatefulSetList); ok {
		for i := range sets.Items {
			if err := workload.Unpack(&sets.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
