// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
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

// errSchemaRestored ends the process to read all objects again: its cache may hold pruned ones, and their versions stay
// the same when the API server returns the fields again.
var errSchemaRestored = errors.New("a CustomResourceDefinition has all fields again: restarting to read its objects")

// definitions are the caches of our CustomResourceDefinitions, by their names.
type definitions map[string]cache.Cache

func cacheDefinitions(mgr manager.Manager) (definitions, error) {
	out := definitions{}
	for _, name := range crd.Names() {
		kept := map[client.Object]cache.ByObject{crd.Object(): crd.Cache(name)}
		one, err := cacheBeside(mgr, cache.Options{ByObject: kept})
		if err != nil {
			return nil, fmt.Errorf("creating the cache of CustomResourceDefinition %s: %w", name, err)
		}
		out[name] = one
	}
	return out, nil
}

// cacheBeside returns a cache that starts and ends with the manager.
func cacheBeside(mgr manager.Manager, options cache.Options) (cache.Cache, error) {
	options.Scheme, options.Mapper, options.HTTPClient = mgr.GetScheme(), mgr.GetRESTMapper(), mgr.GetHTTPClient()
	out, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, err
	}
	return out, mgr.Add(out)
}

// reader reads the definitions.
func (d definitions) reader() crd.Reader {
	out := crd.Reader{}
	for name, kept := range d {
		out[name] = kept
	}
	return out
}

// workspaceSource has every Workspace looked at once the API server prunes its fields.
func (at site) workspaceSource() watch.Source {
	return watch.Source{
		Object: crd.Object(), From: at.definitions[crd.Workspaces],
		WorkspacesOf: func(ctx context.Context, definition client.Object) []types.NamespacedName {
			return at.whilePruned(ctx, definition, &v1beta1.WorkspaceList{})
		},
	}
}

// setSources have every InferenceSet looked at once the API server prunes its fields, or those of its Workspaces.
func (at site) setSources() []source.Source {
	var out []source.Source
	for _, name := range crd.Names() {
		out = append(out, source.Kind[client.Object](at.definitions[name], crd.Object(), handler.EnqueueRequestsFromMapFunc(
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
	missing := crd.MissingOf(definition)
	if len(missing) == 0 {
		return nil
	}
	log.FromContext(ctx).Info("the API server prunes fields: nothing is bought", "definition", definition.GetName(), "missing", missing)
	if err := at.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing all objects failed", "definition", definition.GetName())
		return nil
	}
	var out []types.NamespacedName
	switch all := list.(type) {
	case *v1beta1.WorkspaceList:
		for i := range all.Items {
			out = append(out, client.ObjectKeyFromObject(&all.Items[i]))
		}
	case *v1beta1.InferenceSetList:
		for i := range all.Items {
			out = append(out, client.ObjectKeyFromObject(&all.Items[i]))
		}
	}
	return out
}

// restartOnRestored ends the leader's process once missing fields of a definition are back.
func (d definitions) restartOnRestored(ctx context.Context, mgr manager.Manager) error {
	restored := make(chan struct{}, 1)
	for _, name := range crd.Names() {
		informer, err := d[name].GetInformer(ctx, crd.Object())
		if err != nil {
			return fmt.Errorf("watching CustomResourceDefinition %s: %w", name, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
			if isRestored(before, after) {
				select {
				case restored <- struct{}{}:
				default:
				}
			}
		}})
		if err != nil {
			return fmt.Errorf("watching CustomResourceDefinition %s: %w", name, err)
		}
	}
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-restored:
			return errSchemaRestored
		}
	}))
	if err != nil {
		return fmt.Errorf("adding the wait for restored CustomResourceDefinitions: %w", err)
	}
	return nil
}

func isRestored(before, after any) bool {
	former, ok := before.(client.Object)
	current, okAfter := after.(client.Object)
	return ok && okAfter && len(crd.MissingOf(former)) > 0 && len(crd.MissingOf(current)) == 0
}
