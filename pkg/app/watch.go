// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// readable returns the namespaces in which the controller has a Role. The others were deleted together with the Role,
// and perhaps created again without it. The caches of such a namespace never fill. They must not keep the leader from
// serving the other namespaces.
func readable(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, namespaces []string) ([]string, error) {
	if len(namespaces) == 0 {
		return nil, nil
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("creating the client for the watched namespaces: %w", err)
	}
	var out []string
	for _, namespace := range namespaces {
		workspaces := &metav1.PartialObjectMetadataList{}
		workspaces.SetGroupVersionKind(v1beta1.GroupVersion().WithKind("WorkspaceList"))
		err := live.List(ctx, workspaces, client.InNamespace(namespace), client.Limit(1))
		if apierrors.IsForbidden(err) {
			log.FromContext(ctx).Info("not watching a namespace, because the controller may not read its workspaces: if the namespace exists, "+
				"upgrade the chart's release to create the namespace's Role", "namespace", namespace)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the workspaces of namespace %s: %w", namespace, err)
		}
		out = append(out, namespace)
	}
	if len(out) == 0 { // an empty list would mean all namespaces
		return nil, fmt.Errorf("--watch-namespace: the controller cannot read workspaces in any of %s: create the namespaces, then "+
			"upgrade the chart's release to create their roles", strings.Join(namespaces, ", "))
	}
	return out, nil
}
