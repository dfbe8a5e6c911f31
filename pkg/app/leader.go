// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// syncDeadline bounds the time that a new leader waits for the indexed caches, and then for the others. The leader
// holds the Lease meanwhile, so it must end if the caches do not fill.
const syncDeadline = 2 * time.Minute

// onceElected runs the steps in order when this replica leads. The steps set up all readers of caches, because the
// first reader of a kind starts its watch. Otherwise a waiting replica would hold every object and receive every change
// for nothing (docs/adr/0010-caches-of-the-leader.md).
func onceElected(mgr manager.Manager, steps ...func(context.Context) error) error {
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for _, step := range steps {
			err := step(ctx)
			select {
			case <-ctx.Done():
				return nil // the process is ending, which caused the failure
			default:
			}
			if err != nil {
				return fmt.Errorf("starting as the leader: %w", err)
			}
		}
		return nil
	}))
	if err != nil {
		return fmt.Errorf("adding the leader's tasks: %w", err)
	}
	return nil
}

// indexes collects index registrations before there are caches.
type indexes struct {
	asked []func(context.Context, client.FieldIndexer) error
}

// IndexField implements client.FieldIndexer. It only records the index; make registers it.
func (i *indexes) IndexField(_ context.Context, object client.Object, field string, value client.IndexerFunc) error {
	i.asked = append(i.asked, func(ctx context.Context, indexer client.FieldIndexer) error {
		if err := indexer.IndexField(ctx, object, field, value); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", object, field, err)
		}
		return nil
	})
	return nil
}

// make registers all indexes, and fills their caches.
func (i *indexes) make(ctx context.Context, indexer client.FieldIndexer) error {
	ctx, cancel := context.WithTimeout(ctx, syncDeadline)
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	for _, index := range i.asked {
		all.Go(func() error { return index(ctx, indexer) })
	}
	return all.Wait()
}
