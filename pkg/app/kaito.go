// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/kaito"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/foreign"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
)

// withKAITO returns the reader of machines from KAITO's controller, and adds its watches to the others. The reader is
// nil if the cluster serves no kind of machines. It has its own caches, because the manager's cache selects only our
// machines of the same kinds. The caches are filled before the first pass: otherwise KAITO's Workspaces would look new.
func withKAITO(ctx context.Context, at site, others []watch.Source) (*kaito.Machines, []watch.Source, error) {
	if len(at.served) == 0 {
		return nil, others, nil
	}
	options, err := kaito.CacheOptions(at.served, at.namespaces.Select)
	if err != nil {
		return nil, nil, err
	}
	objects, err := at.cacheOfKAITO(options.Main)
	if err != nil {
		return nil, nil, err
	}
	claims, err := at.cacheOfKAITO(options.PoolClaims)
	if err != nil {
		return nil, nil, err
	}
	machines := kaito.New(kaito.Caches[client.Reader]{Main: objects, PoolClaims: claims}, at.live, at.cached, at.served)
	at.indexes.asked = append(at.indexes.asked, func(ctx context.Context, _ client.FieldIndexer) error {
		return machines.Index(ctx, kaito.Caches[client.FieldIndexer]{Main: objects, PoolClaims: claims})
	})
	watched := machines.Watched()
	others = append(others, sourcesOf(watched.Main, objects)...)
	others = append(others, sourcesOf(watched.PoolClaims, claims)...)
	return machines, others, kaito.IndexAdopted(ctx, at.indexes)
}

func sourcesOf(all []kaito.Watched, from cache.Cache) []watch.Source {
	var out []watch.Source
	for _, watched := range all {
		out = append(out, watch.Source{
			Object: watched.Object, From: from,
			WorkspacesOf: each(func(_ context.Context, object client.Object) types.NamespacedName { return watched.WorkspaceOf(object) }),
		})
	}
	return out
}

// foreignOf returns KAITO's machines for the Reconciler. It returns a nil interface for a nil pointer: a direct
// conversion would not be nil.
func foreignOf(machines *kaito.Machines) foreign.Machines {
	if machines == nil {
		return nil
	}
	return machines
}

// cacheOfKAITO returns a cache that starts and ends with the manager.
func (at site) cacheOfKAITO(options cache.Options) (cache.Cache, error) {
	out, err := cacheBeside(at.mgr, options)
	if err != nil {
		return nil, fmt.Errorf("creating the cache of KAITO's machines: %w", err)
	}
	return out, nil
}

// costsWith adds the costs of KAITO's machines, in Workspaces that were taken over, to the costs of a back end.
func (at site) costsWith(former *kaito.Machines, others capacity.CostSource) capacity.CostSource {
	if former == nil {
		return others
	}
	return &kaito.Costs{CostSource: others, Workspaces: at.cached, Machines: former, Price: at.prices}
}
