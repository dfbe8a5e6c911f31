// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package existing_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// echo is a catalogue that identifies every node by its label.
type echo struct{}

func (echo) Identify(n sku.Node) (sku.Machine, error) {
	if n.Labels["nvidia.com/gpu.product"] == "Riddle" {
		return sku.Machine{}, errors.New("nothing tells what its GPUs are")
	}
	return sku.Machine{
		SKU: sku.SKU{GPUs: n.GPUs, VCPUs: n.VCPUs, MemoryGiB: n.MemoryGiB},
		GPU: sku.GPU{Name: n.Labels["nvidia.com/gpu.product"]}, From: n.Annotations["from"],
	}, nil
}

// node returns a Ready node with 8 GPUs, 95.5 CPUs, 800 GiB of memory and 100 GiB of disk.
func node(name string, edits ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nvidia.com/gpu.product": "G"}},
		Status: corev1.NodeStatus{
			Allocatable: list("8", "95500m", "800Gi", "100Gi"),
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			},
		},
	}
	for _, edit := range edits {
		edit(&n)
	}
	return n
}

func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func tainted(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

// list returns a ResourceList without the empty entries.
func list(gpus, cpu, memory, disk string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{
		"nvidia.com/gpu": gpus, corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory, corev1.ResourceEphemeralStorage: disk,
	} {
		if text != "" {
			out[name] = resource.MustParse(text)
		}
	}
	return out
}

func asks(gpus, cpu, memory, disk string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list(gpus, cpu, memory, disk)}
}

// pod returns a pod with one container that is not of the Workspace.
func pod(on string, asked corev1.ResourceRequirements, edits ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "theirs"},
		Spec:       corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Resources: asked}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

var me = capacity.Owner{Namespace: "mine", Name: "chat", UID: "uid-1"}

func uses(pods []corev1.Pod) []existing.Use {
	var out []existing.Use
	for i := range pods {
		if use, holds := existing.UseOf(&pods[i]); holds {
			out = append(out, use)
		}
	}
	return out
}

func candidates(t *testing.T, nodes []corev1.Node, pods []corev1.Pod, ask existing.Ask) []planner.Node {
	t.Helper()
	ask.Owner = me
	got, err := existing.Candidates(nodes, uses(pods), echo{}, ask)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// slicer is a catalogue that records the nodes to identify.
type slicer struct{ asked *[]sku.Node }

func (s slicer) Identify(n sku.Node) (sku.Machine, error) {
	*s.asked = append(*s.asked, n)
	return sku.Machine{SKU: sku.SKU{GPUs: n.Slices["3g.40gb"], Resource: "nvidia.com/mig-3g.40gb"}}, nil
}

// TestSlicesAreCounted: MIG slices with their own resource count like GPUs, with and without a selector.
func TestSlicesAreCounted(t *testing.T) {
	sliced := node("a", func(n *corev1.Node) {
		delete(n.Labels, "nvidia.com/gpu.product")
		n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0")
		n.Status.Allocatable["nvidia.com/mig-3g.40gb"] = resource.MustParse("4")
		n.Status.Allocatable["nvidia.com/mig-1g.10gb"] = resource.MustParse("0")
	})
	theirs := pod("a", corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/mig-3g.40gb": resource.MustParse("1")}})
	var asked []sku.Node
	got, err := existing.Candidates([]corev1.Node{sliced}, uses([]corev1.Pod{theirs}), slicer{&asked}, existing.Ask{Owner: me})
	if err != nil || len(got) != 1 {
		t.Fatalf("%d candidates, want one: %v", len(got), err)
	}
	if want := map[string]int{"3g.40gb": 4}; cmp.Diff(want, asked[0].Slices) != "" || asked[0].GPUs != 0 || got[0].FreeGPUs != 3 {
		t.Errorf("asked for %+v, %d free, want %v and 3", asked[0], got[0].FreeGPUs, want)
	}
}

// TestCandidates compares all fields of two nodes, by name.
func TestCandidates(t *testing.T) {
	got := candidates(t,
		[]corev1.Node{
			node("b", labelled(corev1.LabelTopologyZone, "z1"), labelled("karpenter.sh/capacity-type", "on-demand")),
			node("a", func(n *corev1.Node) {
				delete(n.Status.Allocatable, corev1.ResourceEphemeralStorage)
				n.Annotations = map[string]string{"from": "annotation"}
			}),
		},
		[]corev1.Pod{pod("b", asks("3", "1500m", "100Gi", "40Gi")), pod("elsewhere", asks("8", "1", "1Gi", ""))},
		existing.Ask{Preferred: []string{"a"}})
	machine := sku.Machine{SKU: sku.SKU{GPUs: 8, VCPUs: 95, MemoryGiB: 800}, GPU: sku.GPU{Name: "G"}}
	annotated := machine
	annotated.From = "annotation"
	want := []planner.Node{
		{Name: "a", Machine: annotated, FreeGPUs: 8, FreeVCPUs: 95, FreeMemoryGiB: 800, FreeDiskGiB: -1, Preferred: true},
		{
			Name: "b", Zone: "z1", Machine: machine, CapacityType: v1beta1.CapacityOnDemand,
			FreeGPUs: 5, FreeVCPUs: 94, FreeMemoryGiB: 700, FreeDiskGiB: 60,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

func TestWhyNodesAreLeftAlone(t *testing.T) {
	tolerations := []corev1.Toleration{
		{Key: "sku", Operator: corev1.TolerationOpEqual, Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
		{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists},
	}
	for _, tc := range []struct {
		reason, want string
		edits        []func(*corev1.Node)
		left, unseen bool
		// foreign hides the node's name from the planner.
		foreign bool
	}{
		{reason: "a free node"},
		{reason: "cordoned", want: "is cordoned", edits: []func(*corev1.Node){func(n *corev1.Node) { n.Spec.Unschedulable = true }}},
		{
			reason: "on its way out", want: "is being deleted",
			edits: []func(*corev1.Node){func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }},
		},
		{
			reason: "not ready, in the kubelet's word", want: "is not ready: KubeletNotReady",
			edits: []func(*corev1.Node){func(n *corev1.Node) {
				n.Status.Conditions[1] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "KubeletNotReady"}
			}},
		},
		{
			reason: "a node that has said nothing yet", want: "is not ready",
			edits: []func(*corev1.Node){func(n *corev1.Node) { n.Status.Conditions = nil }},
		},
		{
			reason: "bought for another Workspace", want: "belongs to another Workspace", foreign: true,
			edits: []func(*corev1.Node){
				labelled(v1beta1.LabelWorkspaceUID, "uid-2"), labelled(v1beta1.LabelMachineWorkspaceName, "y"),
				labelled(v1beta1.LabelMachineWorkspaceNamespace, "x"),
			},
		},
		{
			reason: "bought for this Workspace: to count it as free would end in its release",
			want:   "was bought for this Workspace and is deleted with its NodeClaim",
			edits:  []func(*corev1.Node){labelled(v1beta1.LabelWorkspaceUID, "uid-1"), labelled(v1beta1.LabelMachineWorkspaceName, "chat")},
		},
		{
			reason: "bought by KAITO for another", want: "belongs to another Workspace", foreign: true,
			edits: []func(*corev1.Node){labelled(v1beta1.LabelWorkspace, "y"), labelled(v1beta1.LabelWorkspaceNamespace, "x")},
		},
		{
			reason: "bought for another of the same namespace", want: "belongs to Workspace y",
			edits: []func(*corev1.Node){
				labelled(v1beta1.LabelWorkspaceUID, "uid-2"), labelled(v1beta1.LabelMachineWorkspaceName, "y"),
				labelled(v1beta1.LabelMachineWorkspaceNamespace, "mine"),
			},
		},
		{
			reason: "bought for one of that name that is gone", want: "belongs to a deleted Workspace chat",
			edits: []func(*corev1.Node){
				labelled(v1beta1.LabelWorkspaceUID, "uid-2"), labelled(v1beta1.LabelMachineWorkspaceName, "chat"),
				labelled(v1beta1.LabelMachineWorkspaceNamespace, "mine"),
			},
		},
		{
			reason: "bought for nobody knows whom", want: "belongs to another Workspace", foreign: true,
			edits: []func(*corev1.Node){labelled(v1beta1.LabelWorkspaceUID, "uid-2")},
		},
		{
			reason: "bought by KAITO's gpu-provisioner for this one: the end of the takeover deletes it",
			want:   "KAITO's controller bought it for this Workspace; it is deleted after the takeover",
			edits:  []func(*corev1.Node){labelled(v1beta1.LabelWorkspace, "chat"), labelled(v1beta1.LabelWorkspaceNamespace, "mine")},
		},
		{
			reason: "bought by KAITO's NodePool for this one",
			want:   "KAITO's controller bought it for this Workspace; it is deleted after the takeover",
			edits: []func(*corev1.Node){
				labelled(v1beta1.LabelMachineWorkspaceName, "chat"), labelled(v1beta1.LabelMachineWorkspaceNamespace, "mine"),
			},
		},
		{reason: "the user's own, with a label that a user chose", edits: []func(*corev1.Node){labelled("apps", "chat")}},
		{reason: "the usual taints of GPU nodes", edits: []func(*corev1.Node){
			tainted("sku", "gpu", corev1.TaintEffectNoSchedule), tainted("nvidia.com/gpu", "present", corev1.TaintEffectNoExecute),
			tainted("slow", "", corev1.TaintEffectPreferNoSchedule),
		}},
		{
			reason: "a taint with another value", want: "has the taint sku=cpu:NoSchedule, and the pods do not tolerate it",
			edits: []func(*corev1.Node){tainted("sku", "cpu", corev1.TaintEffectNoSchedule)},
		},
		{
			reason: "tolerated for scheduling, not for staying", want: "has the taint sku=gpu:NoExecute, and the pods do not tolerate it",
			edits: []func(*corev1.Node){tainted("sku", "gpu", corev1.TaintEffectNoExecute)},
		},
		{
			reason: "its machine says that it is broken", want: "reports GPUMissing=True: 7 of 8",
			edits: []func(*corev1.Node){func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "GPUMissing", Status: corev1.ConditionTrue, Message: "7 of 8"})
			}},
		},
		{
			reason: "the scheduler turned a pod down for it", want: "had no room", left: true,
		},
		{
			reason: "the pods want another zone", want: "does not match the node selector or the node affinity of the pods",
			edits: []func(*corev1.Node){labelled(corev1.LabelTopologyZone, "z2")},
		},
		{
			reason: "nobody knows what it is", want: "nothing tells what its GPUs are",
			edits: []func(*corev1.Node){labelled("nvidia.com/gpu.product", "Riddle")},
		},
		{
			reason: "cordoned comes before what it is", want: "is cordoned",
			edits: []func(*corev1.Node){
				labelled("nvidia.com/gpu.product", "Riddle"), func(n *corev1.Node) { n.Spec.Unschedulable = true },
			},
		},
		{
			reason: "nobody may see what pods of other namespaces request of it", unseen: true,
			want: "cannot be used, because this installation cannot see pods of other namespaces on it: " +
				"have the administrator set the chart's watchPodsOfNodes",
		},
		{
			reason: "cordoned comes before what nobody may see", unseen: true, want: "is cordoned",
			edits: []func(*corev1.Node){func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ask := existing.Ask{Unseen: tc.unseen, Pod: corev1.PodSpec{Tolerations: tolerations, Affinity: notIn("z2")}}
			if tc.left {
				ask.Left = map[string]string{"n": "had no room"}
			}
			got := candidates(t, []corev1.Node{node("n", tc.edits...)}, nil, ask)
			if len(got) != 1 || got[0].Unusable != tc.want || got[0].Foreign != tc.foreign {
				t.Errorf("candidates %+v, want one that is %q, foreign %v", got, tc.want, tc.foreign)
			}
		})
	}
}

// notIn returns an affinity that keeps pods out of a zone.
func notIn(zone string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{zone},
		}}}},
	}}}
}

func TestSelectors(t *testing.T) {
	plain := node("plain")
	plain.Labels, plain.Status.Allocatable = map[string]string{"pool": "cpu"}, list("", "4", "16Gi", "")
	nodes := []corev1.Node{plain, node("small", labelled("pool", "small")), node("large", labelled("pool", "large")), node("none", func(n *corev1.Node) {
		delete(n.Status.Allocatable, "nvidia.com/gpu")
	})}
	for _, tc := range []struct {
		reason   string
		selector *metav1.LabelSelector
		want     []string
	}{
		{"without a selector, nodes with GPUs, also where the device plugin is silent", nil, []string{"large", "none", "small"}},
		{"matchLabels", &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "small"}}, []string{"small"}},
		{"what the user names is answered, whatever it is", &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "cpu"}}, []string{"plain"}},
		{
			"labels that name an owner are no choice of the user's",
			&metav1.LabelSelector{
				MatchLabels: map[string]string{"pool": "large", v1beta1.LabelWorkspace: "x"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: v1beta1.LabelMachineWorkspaceName, Operator: metav1.LabelSelectorOpIn, Values: []string{"y"},
				}},
			},
			[]string{"large"},
		},
		{
			"expressions",
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{"small", "large"},
			}}},
			[]string{"large", "small"},
		},
		{"nothing matches", &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}}, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var got []string
			for _, n := range candidates(t, nodes, nil, existing.Ask{Selector: tc.selector}) {
				got = append(got, n.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
			for i := range nodes {
				if matches := existing.Matches(&nodes[i], tc.selector); matches != slices.Contains(tc.want, nodes[i].Name) {
					t.Errorf("node %s matches: %t", nodes[i].Name, matches)
				}
			}
		})
	}
	_, err := existing.Candidates(nodes, nil, echo{}, existing.Ask{Selector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Near"}},
	}})
	if want := `resource.labelSelector: "Near" is not a valid label selector operator`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestFreeResources(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	one := asks("1", "1", "10Gi", "1Gi")
	for _, tc := range []struct {
		reason     string
		pod        corev1.Pod
		gpus, cpus int
		memory     float64
	}{
		{"a pod that runs", pod("n", one), 7, 94, 790},
		{"a limit is a request", pod("n", corev1.ResourceRequirements{Limits: list("2", "", "", "")}), 6, 95, 800},
		{"one that has ended", pod("n", one, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), 8, 95, 800},
		{"one that failed", pod("n", one, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), 8, 95, 800},
		{"one on its way out still holds its GPU", pod("n", one, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), 7, 94, 790},
		{"one that waits for a node", pod("", one), 8, 95, 800},
		{"one that was promised the node", pod("", one, func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }), 7, 94, 790},
		{
			"our own makes room for its successor",
			pod("n", one, func(p *corev1.Pod) {
				p.Namespace, p.Labels = "mine", map[string]string{v1beta1.LabelWorkspace: "chat"}
			}), 8, 95, 800,
		},
		{
			"a namesake in another namespace",
			pod("n", one, func(p *corev1.Pod) { p.Labels = map[string]string{v1beta1.LabelWorkspace: "chat"} }), 7, 94, 790,
		},
		{
			"containers and sidecars together, with the overhead",
			pod("n", one, func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always, Resources: asks("", "2", "5Gi", "")}}
				p.Spec.Overhead = list("", "1", "1Gi", "")
			}), 7, 91, 784,
		},
		{
			"an init container that needs more, beside the sidecar before it",
			pod("n", one, func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{
					{RestartPolicy: &always, Resources: asks("", "2", "5Gi", "")},
					{Resources: asks("4", "", "90Gi", "")},
					{RestartPolicy: &always, Resources: asks("1", "1", "", "")},
				}
			}), 4, 91, 705,
		},
		{
			"what is asked for the pod as a whole",
			pod("n", one, func(p *corev1.Pod) {
				whole := asks("", "4", "20Gi", "")
				p.Spec.Resources = &whole
			}), 7, 91, 780,
		},
		{"more than there is", pod("n", asks("9", "200", "900Gi", "")), 0, 0, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := candidates(t, []corev1.Node{node("n")}, []corev1.Pod{tc.pod}, existing.Ask{})[0]
			if got.FreeGPUs != tc.gpus || got.FreeVCPUs != tc.cpus || got.FreeMemoryGiB != tc.memory {
				t.Errorf("%d GPUs, %d CPUs and %v GiB are free, want %d, %d and %v",
					got.FreeGPUs, got.FreeVCPUs, got.FreeMemoryGiB, tc.gpus, tc.cpus, tc.memory)
			}
		})
	}
}

func TestCapacityTypes(t *testing.T) {
	for _, tc := range []struct {
		reason, label, value string
		want                 v1beta1.CapacityType
	}{
		{"nothing is said", "x", "y", ""},
		{"Karpenter", "karpenter.sh/capacity-type", "reserved", v1beta1.CapacityReserved},
		{"a managed node group of EKS", "eks.amazonaws.com/capacityType", "SPOT", v1beta1.CapacitySpot},
		{"one that is not spot", "eks.amazonaws.com/capacityType", "ON_DEMAND", ""},
		{"AKS", "kubernetes.azure.com/scalesetpriority", "spot", v1beta1.CapacitySpot},
		{"GKE", "cloud.google.com/gke-spot", "true", v1beta1.CapacitySpot},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := candidates(t, []corev1.Node{node("n", labelled(tc.label, tc.value))}, nil, existing.Ask{})[0].CapacityType
			if got != tc.want {
				t.Errorf("capacity type %q, want %q", got, tc.want)
			}
		})
	}
}

// TestNodesWithSeveralSizes: a node whose GPUs have several sizes is one candidate for each size, with the free GPUs
// of that size.
func TestNodesWithSeveralSizes(t *testing.T) {
	mixed := node("a", func(n *corev1.Node) {
		n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("2")
		n.Status.Allocatable["nvidia.com/mig-3g.40gb"] = resource.MustParse("4")
		n.Status.Allocatable["nvidia.com/mig-1g.10gb"] = resource.MustParse("7")
	})
	slicesOf := func(profile, number string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName("nvidia.com/mig-" + profile): resource.MustParse(number)}}
	}
	other := capacity.Owner{Namespace: "mine", Name: "other", UID: "uid-2"}
	for _, tc := range []struct {
		reason   string
		pods     []corev1.Pod
		promised []existing.Promise
		want     map[string]int
	}{
		{"all are free", nil, nil, map[string]int{"slices of 1g.10gb": 7, "slices of 3g.40gb": 4, "whole GPUs": 2}},
		{
			"each pod takes its own size",
			[]corev1.Pod{
				pod("a", slicesOf("3g.40gb", "1")), pod("a", slicesOf("3g.40gb", "2")), pod("a", slicesOf("1g.10gb", "9")), pod("a", asks("1", "", "", "")),
			},
			nil,
			map[string]int{"slices of 1g.10gb": 0, "slices of 3g.40gb": 1, "whole GPUs": 1},
		},
		{
			"a promise takes its own size", nil,
			[]existing.Promise{{Owner: other, Nodes: []string{"a"}, GPUs: 1, Resource: "nvidia.com/mig-1g.10gb"}},
			map[string]int{"slices of 1g.10gb": 6, "slices of 3g.40gb": 4, "whole GPUs": 2},
		},
		{
			"a promise of an earlier version may be of any size", nil,
			[]existing.Promise{{Owner: other, Nodes: []string{"a"}, GPUs: 1}},
			map[string]int{"slices of 1g.10gb": 6, "slices of 3g.40gb": 3, "whole GPUs": 1},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := existing.Candidates([]corev1.Node{mixed}, uses(tc.pods), echo{}, existing.Ask{Owner: me, Promised: tc.promised})
			if err != nil {
				t.Fatal(err)
			}
			free := map[string]int{}
			for _, n := range got {
				if n.Name != "a" {
					t.Errorf("candidate %q, want a", n.Name)
				}
				free[n.Part] = n.FreeGPUs
			}
			if diff := cmp.Diff(tc.want, free); diff != "" {
				t.Errorf("free (-want +got):\n%s", diff)
			}
		})
	}
}
