// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/capacity/admission"
)

// list returns a ResourceList of name and quantity pairs.
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// engine returns a StatefulSet with this many pods. Each has 2 GPUs and a sidecar, like the pods of the renderer.
func engine(replicas int32, change ...func(*corev1.PodSpec)) *appsv1.StatefulSet {
	always := corev1.ContainerRestartPolicyAlways
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{
			Name: "agent", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "128Mi")},
		}},
		Containers: []corev1.Container{{
			Name: "engine", Resources: corev1.ResourceRequirements{
				Requests: list("cpu", "2", "memory", "8Gi"), Limits: list("nvidia.com/gpu", "2"),
			},
		}},
	}
	for _, c := range change {
		c(&spec)
	}
	return &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Template: corev1.PodTemplateSpec{Spec: spec},
	}}
}

func quota(hard, used corev1.ResourceList, change ...func(*corev1.ResourceQuotaSpec)) corev1.ResourceQuota {
	out := corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used},
	}
	for _, c := range change {
		c(&out.Spec)
	}
	return out
}

func scoped(scope corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator, values ...string) func(*corev1.ResourceQuotaSpec) {
	return func(spec *corev1.ResourceQuotaSpec) {
		spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: scope, Operator: operator, Values: values},
		}}
	}
}

func priority(name string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.PriorityClassName = name }
}

func limitRange(item corev1.LimitRangeItem) []corev1.LimitRange {
	return []corev1.LimitRange{{
		ObjectMeta: metav1.ObjectMeta{Name: "bounds"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
	}}
}

func checker(t *testing.T) *admission.Checker {
	t.Helper()
	out, err := admission.New()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pod returns a running pod of a set.
func pod(set *appsv1.StatefulSet) corev1.Pod { return corev1.Pod{Spec: set.Spec.Template.Spec} }

func TestMachineForRefusedPodIsNotBought(t *testing.T) {
	hostPath := func(spec *corev1.PodSpec) {
		spec.Volumes = []corev1.Volume{{Name: "weights", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/models"}}}}
	}
	const smaller = "; raise the limit, or allow only smaller machine types in resource.placement.instanceTypes"
	tests := []struct {
		reason    string
		namespace admission.Namespace
		demand    admission.Demand
		want      *admission.Problem
	}{
		{
			reason: "a namespace without rules admits every pod",
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1, hostPath)}},
		},
		{
			reason:    "GPUs are counted by their requests, which are their limits",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{quota(list("requests.nvidia.com/gpu", "1"), nil)}},
			demand:    admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
			want: &admission.Problem{
				Rule:    admission.ResourceQuota,
				Message: "ResourceQuota team-a/limits refuses the pods: its limit of requests.nvidia.com/gpu is 1, and the pods need 2" + smaller,
			},
		},
		{
			reason:    "all pods of all sets count",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{quota(list("requests.nvidia.com/gpu", "7"), nil)}},
			demand:    admission.Demand{Sets: []*appsv1.StatefulSet{engine(1), engine(3)}},
			want: &admission.Problem{
				Rule:    admission.ResourceQuota,
				Message: "ResourceQuota team-a/limits refuses the pods: its limit of requests.nvidia.com/gpu is 7, and the pods need 8" + smaller,
			},
		},
		{
			reason: "what others use may become free",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{
				quota(list("requests.nvidia.com/gpu", "4"), list("requests.nvidia.com/gpu", "3")),
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
			want: &admission.Problem{
				Rule: admission.ResourceQuota, Transient: true,
				Message: "ResourceQuota team-a/limits refuses the pods: the pods need 2 of requests.nvidia.com/gpu, but less than that is free " +
					"under its limit of 4; raise the limit, or delete unused objects",
			},
		},
		{
			reason: "pods that are there already count as used, and are replaced",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{
				quota(list("requests.nvidia.com/gpu", "2", "pods", "1"), list("requests.nvidia.com/gpu", "2", "pods", "1")),
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}, Pods: []corev1.Pod{pod(engine(1))}, ExistingSets: 1},
		},
		{
			reason: "the quota was lowered below the pods that are there, so their successors would be refused",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{
				quota(list("requests.nvidia.com/gpu", "1"), list("requests.nvidia.com/gpu", "2")),
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}, Pods: []corev1.Pod{pod(engine(1))}, ExistingSets: 1},
			want: &admission.Problem{
				Rule:    admission.ResourceQuota,
				Message: "ResourceQuota team-a/limits refuses the pods: its limit of requests.nvidia.com/gpu is 1, and the pods need 2" + smaller,
			},
		},
		{
			reason: "the quota was lowered below what all use, so successors of the pods would be refused",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{
				quota(list("requests.nvidia.com/gpu", "3"), list("requests.nvidia.com/gpu", "4")),
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}, Pods: []corev1.Pod{pod(engine(1))}, ExistingSets: 1},
			want: &admission.Problem{
				Rule: admission.ResourceQuota, Transient: true,
				Message: "ResourceQuota team-a/limits refuses the pods: the pods need 2 of requests.nvidia.com/gpu, but less than that is free " +
					"under its limit of 3; raise the limit, or delete unused objects",
			},
		},
		{
			reason:    "sidecars count",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{quota(list("cpu", "2"), nil)}},
			demand:    admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
			want: &admission.Problem{
				Rule:    admission.ResourceQuota,
				Message: "ResourceQuota team-a/limits refuses the pods: its limit of cpu is 2, and the pods need 2100m" + smaller,
			},
		},
		{
			reason:    "StatefulSets count",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{quota(list("count/statefulsets.apps", "0"), nil)}},
			demand:    admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
			want: &admission.Problem{
				Rule:    admission.ResourceQuota,
				Message: "ResourceQuota team-a/limits refuses the pods: its limit of count/statefulsets.apps is 0, and the pods need 1" + smaller,
			},
		},
		{
			reason:    "what is counted has to be specified",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{quota(list("limits.memory", "100Gi"), nil)}},
			demand:    admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
			want: &admission.Problem{
				Rule: admission.ResourceQuota,
				Message: "ResourceQuota team-a/limits refuses the pods: it counts limits.memory, but container \"agent\" does not specify it; " +
					"give the namespace a LimitRange with defaults",
			},
		},
		{
			reason:    "a pod without a limit, below a maximum for whole pods",
			namespace: admission.Namespace{Limits: limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("memory", "64Gi")})},
			demand:    admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
			want: &admission.Problem{
				Rule: admission.LimitRange,
				Message: "LimitRange team-a/bounds refuses the pods: its max memory is 64Gi, and a pod has no limit; " +
					"inference.pod sets no limits, so have the administrator remove this max, or add a default memory of type Container to a LimitRange of the namespace: " +
					"this default becomes the limit of each container, and must not be below the container's request",
			},
		},
		{
			reason: "the remedy works: a default gives each container a limit",
			namespace: admission.Namespace{Limits: slices.Concat(
				limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("memory", "64Gi")}),
				limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: list("memory", "8Gi")}),
			)},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
		},
		{
			reason: "a LimitRange specifies it",
			namespace: admission.Namespace{
				Quotas: []corev1.ResourceQuota{quota(list("limits.memory", "100Gi"), nil)},
				Limits: limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: list("memory", "16Gi")}),
			},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
		},
		{
			reason: "a container is larger than the largest",
			namespace: admission.Namespace{Limits: limitRange(corev1.LimitRangeItem{
				Type: corev1.LimitTypeContainer, Default: list("memory", "1Gi"), Max: list("memory", "4Gi"),
			})},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
			want: &admission.Problem{
				Rule: admission.LimitRange,
				Message: "LimitRange team-a/bounds refuses the pods: its max memory is 4Gi, and container \"engine\" has 8Gi; " +
					"set inference.pod.cpu or inference.pod.memory, allow other machine types, or have the administrator change the LimitRange",
			},
		},
		{
			reason:    "a pod is larger than the largest",
			namespace: admission.Namespace{Limits: limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("nvidia.com/gpu", "1")})},
			demand:    admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
			want: &admission.Problem{
				Rule: admission.LimitRange,
				Message: "LimitRange team-a/bounds refuses the pods: its max nvidia.com/gpu is 1, and a pod has 2; " +
					"set inference.pod.cpu or inference.pod.memory, allow other machine types, or have the administrator change the LimitRange",
			},
		},
		{
			reason: "a quota for another priority class does not count the pods",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{
				quota(list("pods", "0"), nil, scoped(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, "high")),
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1, priority("low"))}},
		},
		{
			reason: "a quota for their priority class does",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{
				quota(list("pods", "0"), nil, scoped(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, "high")),
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1, priority("high"))}},
			want: &admission.Problem{
				Rule:    admission.ResourceQuota,
				Message: "ResourceQuota team-a/limits refuses the pods: its limit of pods is 0, and the pods need 1" + smaller,
			},
		},
		{
			reason: "a pod without a priority class may be given the cluster's default",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{
				quota(list("pods", "0"), nil, scoped(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpDoesNotExist)),
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
		},
		{
			reason: "a quota for pods that end does not count the pods",
			namespace: admission.Namespace{Quotas: []corev1.ResourceQuota{
				quota(list("pods", "0"), nil, scoped(corev1.ResourceQuotaScopeTerminating, corev1.ScopeSelectorOpExists)),
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}},
		},
		{
			reason:    "the namespace only warns",
			namespace: admission.Namespace{Labels: map[string]string{"pod-security.kubernetes.io/warn": "restricted"}},
			demand:    admission.Demand{Sets: []*appsv1.StatefulSet{engine(1, hostPath)}},
		},
		{
			reason: "the namespace enforces a level that the pods do not meet",
			namespace: admission.Namespace{Labels: map[string]string{
				"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "v1.31",
			}},
			demand: admission.Demand{Sets: []*appsv1.StatefulSet{engine(1, hostPath)}},
			want: &admission.Problem{
				Rule: admission.PodSecurity,
				Message: "namespace team-a enforces the Pod Security level baseline (label pod-security.kubernetes.io/enforce), which refuses the pods: " +
					"hostPath volumes (volume \"weights\"); change inference.pod, inference.template or inference.weights, " +
					"or have the administrator lower the level",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			tt.namespace.Name = "team-a"
			got := checker(t).Check(tt.namespace, tt.demand, nil)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLastRoomIsPromisedOnce: two simultaneous Workspaces must not both buy for the last GPUs of a quota.
func TestLastRoomIsPromisedOnce(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	book := admission.NewBook(checker(t))
	gpus := func(used string) admission.Namespace {
		return admission.Namespace{Name: "team-a", Quotas: []corev1.ResourceQuota{
			quota(list("requests.nvidia.com/gpu", "2"), list("requests.nvidia.com/gpu", used)),
		}}
	}
	demand := admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}}
	if problem := book.Reserve(noon, "first", gpus("0"), demand); problem != nil {
		t.Fatalf("the first is refused: %s", problem.Message)
	}
	if problem := book.Reserve(noon, "first", gpus("0"), demand); problem != nil {
		t.Errorf("the first is refused beside its own promise: %s", problem.Message)
	}
	problem := book.Reserve(noon, "second", gpus("0"), demand)
	if problem == nil || !problem.Transient || !strings.Contains(problem.Message, "the pods need 2 of requests.nvidia.com/gpu, but less than that is free") {
		t.Errorf("the second: got %+v, want that too little is free", problem)
	}
	elsewhere := gpus("0")
	elsewhere.Name = "team-b"
	if problem := book.Reserve(noon, "third", elsewhere, demand); problem != nil {
		t.Errorf("another namespace is refused: %s", problem.Message)
	}
	book.Settle("first")
	if problem := book.Reserve(noon, "second", gpus("2"), demand); problem == nil {
		t.Error("the second is admitted although the first one's pods use everything")
	}
	if problem := book.Reserve(noon, "second", gpus("0"), demand); problem != nil {
		t.Errorf("the second is refused although the first one is gone: %s", problem.Message)
	}
	if problem := book.Reserve(noon.Add(time.Hour), "first", gpus("0"), demand); problem != nil {
		t.Errorf("a promise whose pods never came is kept for ever: %s", problem.Message)
	}
}

// TestLastSetIsPromisedOnce: a promise also counts against the quota of StatefulSets.
func TestLastSetIsPromisedOnce(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	book := admission.NewBook(checker(t))
	sets := func(used string) admission.Namespace {
		return admission.Namespace{Name: "team-a", Quotas: []corev1.ResourceQuota{
			quota(list("count/statefulsets.apps", "2"), list("count/statefulsets.apps", used)),
		}}
	}
	group := admission.Demand{Sets: []*appsv1.StatefulSet{engine(1), engine(3)}, ExistingSets: 1}
	demand := admission.Demand{Sets: []*appsv1.StatefulSet{engine(1)}}
	if problem := book.Reserve(noon, "group", sets("1"), group); problem != nil {
		t.Fatalf("the second set of a group is refused: %s", problem.Message)
	}
	problem := book.Reserve(noon, "second", sets("1"), demand)
	if problem == nil || !problem.Transient || !strings.Contains(problem.Message, "the pods need 1 of count/statefulsets.apps, but less than that is free under its limit of 2") {
		t.Errorf("another Workspace: got %+v, want that too little is free", problem)
	}
	book.Settle("group")
	if problem := book.Reserve(noon, "second", sets("1"), demand); problem != nil {
		t.Errorf("refused although the group is gone: %s", problem.Message)
	}
}
