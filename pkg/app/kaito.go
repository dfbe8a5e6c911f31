// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/capacity/kaito"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/foreign"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
)

// withKAITO returns the finder of machines from KAITO's controller, and adds its watches to the others; nil if the
// cluster serves no kind of machines. It has its own cache, because the manager's has the same kinds with the
// selector of our machines. That cache is filled before the first pass: otherwise KAITO's Workspaces would look
// new.
func withKAITO(at site, others []watch.Source) (foreign.Machines, []watch.Source, error) {
	if len(at.served) == 0 {
		return nil, others, nil
	}
	options, err := kaito.CacheOptions(at.served, at.namespaces.Select)
	if err != nil {
		return nil, nil, err
	}
	options.Scheme, options.Mapper, options.HTTPClient = at.mgr.GetScheme(), at.mgr.GetRESTMapper(), at.mgr.GetHTTPClient()
	objects, err := cache.New(at.mgr.GetConfig(), options)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the cache of KAITO's machines: %w", err)
	}
	if err := at.mgr.Add(objects); err != nil {
		return nil, nil, fmt.Errorf("adding the cache of KAITO's machines: %w", err)
	}
	machines := kaito.New(objects, at.live, at.cached, at.served)
	at.indexes.asked = append(at.indexes.asked, func(ctx context.Context, _ client.FieldIndexer) error {
		return machines.Index(ctx, objects)
	})
	for _, watched := range machines.Watched() {
		others = append(others, watch.Source{
			Object: watched.Object, From: objects,
			WorkspacesOf: each(func(_ context.Context, object client.Object) types.NamespacedName { return watched.WorkspaceOf(object) }),
		})
	}
	return machines, others, nil
}
