// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/crd"
)

// errSchemaRestored ends the process to read all Workspaces again: its cache may hold pruned ones, and their
// versions stay the same when the API server returns the fields again.
var errSchemaRestored = errors.New("the CustomResourceDefinition of Workspaces has all fields again: restarting to read them")

// schemaSource has every Workspace looked at once the API server prunes its fields.
func schemaSource(at site) watch.Source {
	return watch.Source{
		Object: crd.Object(), From: at.mgr.GetCache(),
		WorkspacesOf: func(ctx context.Context, definition client.Object) []types.NamespacedName {
			missing := crd.MissingOf(definition)
			if len(missing) == 0 {
				return nil
			}
			log.FromContext(ctx).Info("the API server prunes fields of Workspaces: nothing is bought", "missing", missing)
			list := &v1beta1.WorkspaceList{}
			if err := at.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
				log.FromContext(ctx).Error(err, "listing all workspaces failed")
				return nil
			}
			var out []types.NamespacedName
			for i := range list.Items {
				out = append(out, client.ObjectKeyFromObject(&list.Items[i]))
			}
			return out
		},
	}
}

// restartOnRestoredSchema ends the leader's process once missing fields are back.
func restartOnRestoredSchema(ctx context.Context, mgr manager.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, crd.Object())
	if err != nil {
		return fmt.Errorf("watching the CustomResourceDefinition of Workspaces: %w", err)
	}
	restored := make(chan struct{}, 1)
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if isRestored(before, after) {
			select {
			case restored <- struct{}{}:
			default:
			}
		}
	}})
	if err != nil {
		return fmt.Errorf("watching the CustomResourceDefinition of Workspaces: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-restored:
			return errSchemaRestored
		}
	}))
	if err != nil {
		return fmt.Errorf("watching the CustomResourceDefinition of Workspaces: %w", err)
	}
	return nil
}

func isRestored(before, after any) bool {
	former, ok := before.(client.Object)
	current, okAfter := after.(client.Object)
	return ok && okAfter && len(crd.MissingOf(former)) > 0 && len(crd.MissingOf(current)) == 0
}
