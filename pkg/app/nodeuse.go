// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/modelberth/modelberth/pkg/capacity/nodeuse"
)

// podsOfNodes returns the watch of pods' requests on nodes. The watch starts at its first use by the leader. The
// manager's cache does not suffice: it has only the pods of Workspaces. It would also keep more of each pod.
func podsOfNodes(mgr manager.Manager) (*nodeuse.Pods, error) {
	live, err := client.NewWithWatch(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("creating the client for the pods of nodes: %w", err)
	}
	pods := nodeuse.New(live)
	if err := mgr.Add(pods); err != nil {
		return nil, fmt.Errorf("adding the watch of the pods of nodes: %w", err)
	}
	return pods, nil
}
