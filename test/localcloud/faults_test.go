// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/test/localcloud/provider/v1alpha1"
)

// TestLifecycleOfFaults confronts the real Karpenter with a script's faults, each with a machine type of its own, all
// at once.
func TestLifecycleOfFaults(t *testing.T) {
	c := newTestCloud(t)
	c.up(t)
	t.Cleanup(func() { c.run(t, "down") })
	kube := c.kube(t)
	const rules = `
rules:
- {sku: Standard_NC24ads_A100_v4, cloud: azure, outcome: quota, delay: 3s}
- {sku: Standard_NC48ads_A100_v4, cloud: aws, outcome: noCapacity}
- {sku: Standard_NC96ads_A100_v4, outcome: apiError, times: 2}
- {sku: Standard_NC40ads_H100_v5, outcome: neverRegisters}
- {sku: Standard_NC80adis_H100_v5, outcome: noGPUs, gpus: 1}
- {sku: Standard_NC4as_T4_v3, outcome: gpuFault, after: 1s}
- {sku: Standard_ND96asr_v4, outcome: gpusLost, after: 30s, gpus: 7}
- {sku: Standard_NC64as_T4_v3, cloud: aws, outcome: evicted, after: 10s, notice: 60s}
- {sku: Standard_NC8as_T4_v3, outcome: dies, after: 10s, removeNode: true}
`
	if err := setScript(c.layout, "-", strings.NewReader(rules)); err != nil {
		t.Fatal(err)
	}
	const gone, works = "gone", "Launched Registered Initialized"
	stories := []struct{ sku, reason, want string }{
		{"Standard_NC24ads_A100_v4", "quota on Azure is first named, then the claim goes", gone + " after SubscriptionQuotaReached InsufficientCapacityError"},
		{"Standard_NC48ads_A100_v4", "no capacity on AWS", gone + " after InsufficientCapacityError"},
		{"Standard_NC96ads_A100_v4", "an API that fails twice", works + " 4 GPUs after LaunchFailed"},
		{"Standard_NC40ads_H100_v5", "a machine that is no node", "Launched"},
		{"Standard_NC80adis_H100_v5", "a GPU that is missing", works + " 1 GPUs"},
		{"Standard_NC4as_T4_v3", "broken GPUs", works + " 1 GPUs AcceleratedHardwareReady=False"},
		{"Standard_ND96asr_v4", "a GPU that fails later", works + " 7 GPUs"},
		{"Standard_NC64as_T4_v3", "an eviction", gone + " after SpotInterrupted"},
		{"Standard_NC8as_T4_v3", "a machine that dies with its node", gone},
	}
	watchers := map[string]*watcher{}
	for _, story := range stories {
		w := &watcher{kube: kube, name: strings.ReplaceAll(strings.ToLower(story.sku), "_", "-")}
		if err := kube.Create(t.Context(), w.claim(story.sku)); err != nil {
			t.Fatal(err)
		}
		watchers[story.sku] = w
	}
	got, want := map[string]string{}, map[string]string{}
	for _, story := range stories {
		want[story.reason] = story.want
	}
	await(t, 2*time.Minute, func() error {
		for _, story := range stories {
			seen, err := watchers[story.sku].look(t)
			if err != nil {
				return err
			}
			got[story.reason] = seen
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// watcher looks at one claim and remembers why it was not launched.
type watcher struct {
	kube    client.Client
	name    string
	refused string
}

func (w *watcher) claim(sku string) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
	claim.Spec = karpv1.NodeClaimSpec{
		NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "LocalNodeClass", Name: "default"},
		Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{sku}},
			{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}},
		},
		Resources:   karpv1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
		ExpireAfter: karpv1.MustParseNillableDuration("Never"),
	}
	return claim
}

// look returns the claim's progress, its node's signs, and the events on the way.
func (w *watcher) look(t *testing.T) (string, error) {
	var words []string
	claim := &karpv1.NodeClaim{}
	err := w.kube.Get(t.Context(), client.ObjectKey{Name: w.name}, claim)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return "", err
	case err != nil:
		words = append(words, "gone")
	default:
		for _, kind := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
			condition := claim.StatusConditions().Get(kind)
			if condition.IsTrue() {
				words = append(words, kind)
			} else if kind == karpv1.ConditionTypeLaunched && condition.Reason != "AwaitingReconciliation" {
				w.refused = condition.Reason
			}
		}
		node, err := w.node(t, claim)
		if err != nil {
			return "", err
		}
		words = append(words, node...)
	}
	said, err := w.events(t)
	if err != nil {
		return "", err
	}
	if w.refused != "" {
		said = append([]string{w.refused}, said...)
	}
	if len(said) > 0 {
		words = append(append(words, "after"), said...)
	}
	return strings.Join(words, " "), nil
}

// node returns the signs on the claim's node, once they are complete.
func (w *watcher) node(t *testing.T, claim *karpv1.NodeClaim) ([]string, error) {
	if !claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
		return nil, nil
	}
	node := &corev1.Node{}
	if err := w.kube.Get(t.Context(), client.ObjectKey{Name: claim.Status.NodeName}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	gpus := node.Status.Allocatable["nvidia.com/gpu"]
	words := []string{gpus.String() + " GPUs"}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "AcceleratedHardwareReady" {
			words = append(words, fmt.Sprintf("%s=%s", condition.Type, condition.Status))
		}
	}
	return words, nil
}

// events returns the reasons of the warnings about a claim's end.
func (w *watcher) events(t *testing.T) ([]string, error) {
	events := &corev1.EventList{}
	if err := w.kube.List(t.Context(), events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return nil, err
	}
	var reasons []string
	for _, event := range events.Items {
		about := event.InvolvedObject.Kind == "NodeClaim" && event.InvolvedObject.Name == w.name
		if about && (event.Reason == "InsufficientCapacityError" || event.Reason == "SpotInterrupted") {
			reasons = append(reasons, event.Reason)
		}
	}
	return reasons, nil
}
