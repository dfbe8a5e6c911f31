// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/crd"
)

// errSchemaRestored ends the process, so that it reads all objects again. Its cache may hold pruned objects. Their
// resource versions do not change when the API server returns the fields again, so a watch would not update them.
var errSchemaRestored = errors.New("the API server no longer prunes fields of Workspaces or InferenceSets: restarting to read complete objects")

// definitions are the fields of our CustomResourceDefinitions, and the caches of the definitions by their names.
type definitions struct {
	fields *crd.Definitions
	caches map[string]cache.Cache
}

func cacheDefinitions(mgr manager.Manager) (*definitions, error) {
	out := &definitions{caches: map[string]cache.Cache{}}
	out.fields = crd.NewDefinitions(func(name string, missing []string) {
		if len(missing) > 0 {
			mgr.GetLogger().Info("the API server prunes fields: nothing is written", "definition", name, "missing", missing)
		}
	})
	for _, name := range crd.Names() {
		kept := map[client.Object]cache.ByObject{crd.Object(): out.fields.Cache(name)}
		one, err := cacheBeside(mgr, cache.Options{ByObject: kept})
		if err != nil {
			return nil, fmt.Errorf("creating the cache of CustomResourceDefinition %s: %w", name, err)
		}
		out.caches[name] = one
	}
	return out, nil
}

// cacheBeside returns a cache that starts and ends with the manager; with rules for single kinds, it starts when the
// manager leads.
func cacheBeside(mgr manager.Manager, options cache.Options) (cache.Cache, error) {
	out, err := newCache(mgr, options)
	if err != nil {
		return nil, err
	}
	return out, mgr.Add(out)
}

func newCache(mgr manager.Manager, options cache.Options) (cache.Cache, error) {
	options.Scheme, options.Mapper, options.HTTPClient = mgr.GetScheme(), mgr.GetRESTMapper(), mgr.GetHTTPClient()
	return cache.New(mgr.GetConfig(), options)
}

// onEachReplica is a cache that a manager starts without waiting to lead. A manager takes a cache with rules for single
// kinds for a task of the leader.
type onEachReplica struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (onEachReplica) NeedLeaderElection() bool { return false }

// workspaceSource returns the watch that requests a pass over every Workspace once the API server prunes its fields.
func (at site) workspaceSource() watch.Source {
	return watch.Source{
		Object: crd.Object(), From: at.definitions.caches[crd.Workspaces],
		WorkspacesOf: func(ctx context.Context, definition client.Object) []types.NamespacedName {
			return at.whilePruned(ctx, definition, &v1beta1.WorkspaceList{})
		},
	}
}

// setSources returns the watches that request a pass over every InferenceSet once the API server prunes its fields or
// those of its Workspaces.
func (at site) setSources() []source.Source {
	var out []source.Source
	for _, name := range crd.Names() {
		out = append(out, source.Kind[client.Object](at.definitions.caches[name], crd.Object(), handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, definition client.Object) []reconcile.Request {
				var requests []reconcile.Request
				for _, set := range at.whilePruned(ctx, definition, &v1beta1.InferenceSetList{}) {
					requests = append(requests, reconcile.Request{NamespacedName: set})
				}
				return requests
			})))
	}
	return out
}

// whilePruned returns all objects of a kind, if a definition lacks fields.
func (at site) whilePruned(ctx context.Context, definition client.Object, list client.ObjectList) []types.NamespacedName {
	if name, _ := at.definitions.fields.Missing(definition.GetName()); name == "" {
		return nil
	}
	if err := at.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing all objects failed", "definition", definition.GetName())
		return nil
	}
	var out []types.NamespacedName
	_ = meta.EachListItem(list, func(item runtime.Object) error { // fails only if it is not a list
		if object, ok := item.(client.Object); ok {
			out = append(out, client.ObjectKeyFromObject(object))
		}
		return nil
	})
	return out
}

// watch fills the caches of the definitions, and ends the leader's process once missing fields are back. It must run
// before any object is read. Otherwise pruned objects could stay in the caches unnoticed after a repair of the
// definitions.
func (d *definitions) watch(ctx context.Context, mgr manager.Manager) error {
	bounded, cancel := context.WithTimeout(ctx, syncDeadline)
	defer cancel()
	for _, name := range crd.Names() {
		if _, err := d.caches[name].GetInformer(bounded, crd.Object()); err != nil {
			return fmt.Errorf("watching CustomResourceDefinition %s: %w", name, err)
		}
	}
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-d.fields.Restored():
			return errSchemaRestored
		}
	}))
	if err != nil {
		return fmt.Errorf("adding the wait for restored CustomResourceDefinitions: %w", err)
	}
	return nil
}
