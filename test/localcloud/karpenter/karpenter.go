// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package karpenter runs Karpenter's own controllers, the real library, with the
// local cloud as their provider. It is wiring and decides nothing.
package karpenter

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/interruption"
	"github.com/modelberth/modelberth/test/localcloud/provider"
	"github.com/modelberth/modelberth/test/localcloud/provider/v1alpha1"
	"github.com/modelberth/modelberth/test/localcloud/sku"
)

// catalogueDeadline bounds the one request before the start.
const catalogueDeadline = 10 * time.Second

// Run runs the controllers until the process is told to end. Their settings come
// from the environment, as Karpenter reads them.
func Run(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), catalogueDeadline)
	defer cancel()
	client := cloud.NewClient(socket)
	skus, err := client.Catalogue(ctx)
	if err != nil {
		return fmt.Errorf("reading the catalogue of machine types: %w", err)
	}
	v1alpha1.AddToScheme(scheme.Scheme)
	// The operator parses the process's arguments itself; ours are not its.
	os.Args = os.Args[:1]
	operate(client, skus)
	return nil
}

func operate(client *cloud.Client, skus []sku.SKU) {
	ctx, op := operator.NewOperator()
	plain := provider.New(op.GetClient(), client, skus)
	decorated := overlay.Decorate(plain, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated)
	all := controllers.NewControllers(ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, decorated, plain, cluster, op.InstanceTypeStore)
	all = append(all, interruption.New(op.GetClient(), client, op.EventRecorder))
	op.WithControllers(ctx, all...).Start(ctx)
}
