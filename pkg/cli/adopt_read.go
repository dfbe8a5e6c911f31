// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// readTakeover reads the input of a survey; an empty namespace means all. A cluster-wide kind that the user may not
// list becomes an obstacle, because KAITO's controller could run unseen.
func (c *Cluster) readTakeover(ctx context.Context, namespace string) (*takeover.Cluster, []takeover.Obstacle, error) {
	out := &takeover.Cluster{}
	workspaces, sets := &v1beta1.WorkspaceList{}, &appsv1.StatefulSetList{}
	services, deployments := &corev1.ServiceList{}, &appsv1.DeploymentList{}
	for _, each := range []struct {
		what string
		list client.ObjectList
	}{{"Workspaces", workspaces}, {"StatefulSets", sets}, {"Services", services}} {
		if err := c.readTyped(ctx, each.list, namespace); err != nil {
			return nil, nil, worded(err, each.what)
		}
	}
	out.Workspaces, out.StatefulSets, out.Services = workspaces.Items, sets.Items, services.Items
	var unread []takeover.Obstacle
	missing := func(kind string, err error) error {
		switch {
		case err == nil, meta.IsNoMatchError(err), apierrors.IsNotFound(err): // the cluster may lack the kind
			return nil
		case apierrors.IsForbidden(err):
			unread = append(unread, notChecked(kind, err))
			return nil
		default:
			return worded(err, kind)
		}
	}
	if err := missing("Deployments", c.readTyped(ctx, deployments, "")); err != nil {
		return nil, nil, err
	}
	out.Deployments = deployments.Items
	for _, from := range []struct {
		source
		into *[]unstructured.Unstructured
	}{
		{kindIn("karpenter.sh", "NodePool"), &out.NodePools},
		{kindIn("karpenter.sh", "NodeClaim"), &out.NodeClaims},
		{kindIn("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"), &out.Webhooks},
		{kindIn("apiextensions.k8s.io", "CustomResourceDefinition", "workspaces.kaito.sh", "inferencesets.kaito.sh"), &out.Definitions},
	} {
		objects, err := c.readAll(ctx, from.source)
		if err := missing(from.Kind+"s", err); err != nil {
			return nil, nil, err
		}
		*from.into = objects
	}
	return out, unread, nil
}

// notChecked returns the obstacle for a kind that the user may not list.
func notChecked(kind string, err error) takeover.Obstacle {
	return takeover.Obstacle{
		ID: "NotChecked", Object: kind, Problem: err.Error(),
		Fix: "run the command as a user with permission to list " + kind + " of the whole cluster",
	}
}

func kindIn(group, kind string, names ...string) source {
	return source{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, names: names}
}

// readTyped lists the objects of a namespace. An empty namespace means all.
func (c *Cluster) readTyped(ctx context.Context, list client.ObjectList, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return c.Objects.List(ctx, list, client.InNamespace(namespace))
}
