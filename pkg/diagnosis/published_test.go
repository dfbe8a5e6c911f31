// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// prepared makes a pod one that its node has not started yet.
func prepared(p *corev1.Pod) {
	p.UID = "pod-1"
	p.Status.Phase = corev1.PodPending
	p.Status.InitContainerStatuses[0] = status("weights", waiting("PodInitializing", ""), nil)
	p.Status.ContainerStatuses[0] = status("chat", waiting("PodInitializing", ""), nil)
}

func set(change func(*appsv1.StatefulSet)) []*appsv1.StatefulSet {
	out := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{UID: "set-1", Generation: 2}}
	out.Spec.Replicas, out.Status.ObservedGeneration = new(int32(1)), 2
	change(out)
	return []*appsv1.StatefulSet{out}
}

func TestSilent(t *testing.T) {
	for _, tc := range []struct {
		reason string
		pods   []corev1.Pod
		sets   []*appsv1.StatefulSet
		want   []types.UID
	}{
		{"a pod that its node prepares", []corev1.Pod{pod(prepared)}, nil, []types.UID{"pod-1"}},
		{
			"a pod of which the kubelet has told nothing yet",
			[]corev1.Pod{pod(prepared, func(p *corev1.Pod) {
				p.Status.InitContainerStatuses, p.Status.ContainerStatuses = nil, nil
			})},
			nil,
			[]types.UID{"pod-1"},
		},
		{"a pod that waits for the scheduler", []corev1.Pod{pod(prepared, func(p *corev1.Pod) { p.Spec.NodeName = "" })}, nil, nil},
		{"a pod that fetches its weights", []corev1.Pod{pod(fetching(running()))}, nil, nil},
		{"a pod whose image cannot be pulled", []corev1.Pod{pod(fetching(waiting("ErrImagePull", "no")))}, nil, nil},
		{"a pod that runs", []corev1.Pod{pod(isReady)}, nil, nil},
		{
			"a pod that is on its way out",
			[]corev1.Pod{pod(prepared, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })},
			nil, nil,
		},
		{"a set without its pod", nil, set(func(*appsv1.StatefulSet) {}), []types.UID{"set-1"}},
		{"a set with its pod", nil, set(func(s *appsv1.StatefulSet) { s.Status.Replicas = 1 }), nil},
		{"a set that nobody has looked at yet", nil, set(func(s *appsv1.StatefulSet) { s.Generation = 3 }), nil},
		{"a set of no pods", nil, set(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(0)) }), nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, diagnosis.Silent(tc.pods, tc.sets)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPublishedWarnings(t *testing.T) {
	about := func(uid types.UID, reason, message string) []diagnosis.Warning {
		return []diagnosis.Warning{{About: uid, Reason: reason, Message: message}}
	}
	const noVolume = `MountVolume.SetUp failed for volume "config" : configmap "tuned" not found`
	preparing := `node "node-a" is pulling the image of container "weights" in pod "chat-0", or mounting the pod's volumes: if this persists, kubectl describe pod shows why`
	for _, tc := range []struct {
		reason   string
		pods     []corev1.Pod
		warnings []diagnosis.Warning
		want     diagnosis.Finding
	}{
		{"nothing was published", []corev1.Pod{pod(prepared)}, nil, pending(preparing)},
		{
			"a volume cannot be mounted",
			[]corev1.Pod{pod(prepared)},
			about("pod-1", "FailedMount", noVolume),
			finding(v1beta1.ReasonVolumeNotMounted, `node "node-a" cannot mount a volume of pod "chat-0" (MountVolume.SetUp failed for volume "config" : `+
				`configmap "tuned" not found): create the missing volume, Secret or ConfigMap, or change its name in inference`),
		},
		{
			"the node's network is broken",
			[]corev1.Pod{pod(prepared)},
			about("pod-1", "FailedCreatePodSandBox", "rpc error: failed to setup network for sandbox \"0123456789abcdef0123456789abcdef0123\": no IP"),
			finding(v1beta1.ReasonPodSandboxFailed, `node "node-a" cannot start pod "chat-0" (rpc error: failed to setup network for sandbox "…": no IP): `+
				`check the node's network and runtime class, and its kubelet log`),
		},
		{"another pod's", []corev1.Pod{pod(prepared)}, about("pod-2", "FailedMount", noVolume), pending(preparing)},
		{"what says nothing about starting", []corev1.Pod{pod(prepared)}, about("pod-1", "Unhealthy", "x"), pending(preparing)},
		{
			"it runs by now",
			[]corev1.Pod{pod(fetching(running()), func(p *corev1.Pod) { p.UID = "pod-1" })},
			about("pod-1", "FailedMount", noVolume),
			pending(`pod "chat-0" is fetching weights: its container "weights" serves the progress at /progress`),
		},
		{
			"a quota", nil,
			about("set-1", "FailedCreate", `create Pod chat-0 in StatefulSet chat failed error: pods "chat-0" is forbidden: exceeded quota: small, `+
				`requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4`),
			finding(v1beta1.ReasonPodRefused, `the cluster rejects the pod (pods "chat-0" is forbidden: exceeded quota: small, `+
				`requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4): `+
				`raise the ResourceQuota of the namespace, or delete unused objects`),
		},
		{
			"a quota of limits, which inference.pod cannot set", nil,
			about("set-1", "FailedCreate", `create Pod chat-0 in StatefulSet chat failed error: pods "chat-0" is forbidden: failed quota: small: must specify limits.memory for: weights`),
			finding(v1beta1.ReasonPodRefused, `the cluster rejects the pod (pods "chat-0" is forbidden: failed quota: small: must specify limits.memory for: weights): `+
				`add a LimitRange with defaults to the namespace`),
		},
		{
			"a webhook", nil, about("set-1", "FailedCreate", `admission webhook "v.example" denied the request: no`),
			finding(v1beta1.ReasonPodRefused, `the cluster rejects the pod (admission webhook "v.example" denied the request: no): `+
				`ask the owner of the policy for an exception, or change inference.pod`),
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := diagnosis.Input{
				Want: 1, Pods: tc.pods, Nodes: []corev1.Node{node("node-a", corev1.NodeReady)}, Signatures: signatures(t), Warnings: tc.warnings,
			}
			if diff := cmp.Diff(tc.want, diagnosis.Inference(in)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
