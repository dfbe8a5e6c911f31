// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/workload"
)

// progressLimit is the time limit for an agent's progress.
const progressLimit = 2 * time.Second

// nodeClaims returns an empty list of NodeClaims. It is unstructured, because importing Karpenter's types changes
// globals.
func nodeClaims() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaimList"})
	return list
}

// machinesOf selects the NodeClaims of a Workspace, and podsOf its pods.
func machinesOf(uid types.UID) client.MatchingLabels {
	return client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(uid)}
}

func podsOf(name string) client.MatchingLabels {
	return client.MatchingLabels{v1beta1.LabelWorkspace: name}
}

// snapshot is the observed state of one Workspace.
type snapshot struct {
	*report
	pods []corev1.Pod
}

// observe reads the state of a Workspace, except the agents' progress.
func (c *Cluster) observe(ctx context.Context, name string) (*snapshot, error) {
	ws, err := c.workspace(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	out := summary(ws)
	claims := nodeClaims()
	switch err := c.Objects.List(ctx, claims, machinesOf(ws.UID)); {
	case err == nil:
		out.addMachines(claims.Items)
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err): // no Karpenter here
	case apierrors.IsForbidden(err):
		out.Unseen = "you are not allowed to list NodeClaims"
	default:
		return nil, worded(err, "NodeClaims of Workspace "+key(ws))
	}
	if len(out.Machines) == 0 {
		out.Nodes = ws.Status.WorkerNodes
	}
	pods, err := c.pods(ctx, name)
	if err != nil {
		return nil, err
	}
	out.addPods(pods)
	return &snapshot{report: out, pods: pods}, nil
}

func (c *Cluster) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.Objects.List(ctx, list, client.InNamespace(c.Namespace), podsOf(name)); err != nil {
		return nil, worded(err, fmt.Sprintf("pods of Workspace %s/%s", c.Namespace, name))
	}
	return list.Items, nil
}

// askAgents requests the progress of all agents that fetch weights. If an agent does not answer, its last progress
// stays.
func (c *Cluster) askAgents(ctx context.Context, seen *snapshot) {
	ctx, cancel := context.WithTimeout(ctx, progressLimit)
	defer cancel()
	var asked sync.WaitGroup
	for i := range seen.Pods {
		entry := &seen.Pods[i]
		at := slices.IndexFunc(seen.pods, func(pod corev1.Pod) bool { return pod.Name == entry.Name })
		port := agentPort(&seen.pods[at])
		if entry.Stage != podFetching || port == 0 {
			continue
		}
		asked.Go(func() {
			if progress := c.askAgent(ctx, client.ObjectKeyFromObject(&seen.pods[at]), port); progress != nil {
				entry.Weights = progress
			}
		})
	}
	asked.Wait()
}

func (c *Cluster) askAgent(ctx context.Context, pod types.NamespacedName, port int32) *fetch.Progress {
	answer, err := c.Pods.Get(ctx, pod, port, "progress")
	if err != nil {
		return nil
	}
	progress := &fetch.Progress{}
	if err := json.Unmarshal(answer, progress); err != nil {
		return nil
	}
	return progress
}

// agentPort returns the port of a pod's agent; 0 if the pod has no agent.
func agentPort(pod *corev1.Pod) int32 {
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if container.Name == workload.WeightsContainer(pod.Labels[v1beta1.LabelWorkspace]) && len(container.Ports) > 0 {
			return container.Ports[0].ContainerPort
		}
	}
	return 0
}
