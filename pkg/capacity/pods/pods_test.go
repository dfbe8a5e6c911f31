// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/events"
	"github.com/modelberth/modelberth/pkg/workload"
)

func owner() capacity.Owner {
	return capacity.Owner{Namespace: "team-a", Name: "chat", UID: "uid-1"}
}

func labelled() map[string]string {
	return map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelWorkspace: "chat", v1beta1.LabelWorkspaceUID: "uid-1"}
}

func annotated(attempt int) map[string]string {
	return map[string]string{v1beta1.AnnotationMachine: fmt.Sprintf(
		`{"attempt":%d,"instanceType":"Standard_NC24ads_A100_v4","capacityType":"on-demand","hourlyPrice":3.673}`, attempt)}
}

// setOf returns a StatefulSet that requests machines for an attempt.
func setOf(attempt, replicas int) *appsv1.StatefulSet {
	ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "uid-1"}}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "chat", UID: types.UID(fmt.Sprintf("set-%d", attempt)), Labels: labelled(),
			CreationTimestamp: metav1.NewTime(start),
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(ws, v1beta1.GroupVersion().WithKind("Workspace"))},
		},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32(replicas)), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: annotated(attempt)},
		}},
	}
}

// podOf returns the pod of an ordinal, created a minute after its set, on the named node if any.
func podOf(set *appsv1.StatefulSet, attempt, ordinal int, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: fmt.Sprintf("chat-%d", ordinal), UID: types.UID(fmt.Sprintf("pod-%d-%d", attempt, ordinal)),
			Labels: labelled(), Annotations: annotated(attempt), CreationTimestamp: metav1.NewTime(start.Add(time.Minute)),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
		}}},
	}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available",
		LastTransitionTime: metav1.NewTime(start.Add(2 * time.Minute)),
	}}
	return pod
}

func nodeOf(gpus string, age time.Duration) *corev1.Node {
	const name = "gpu-1"
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(start.Add(age)),
			Labels: map[string]string{corev1.LabelInstanceTypeStable: "Standard_NC24ads_A100_v4", corev1.LabelTopologyZone: "eastus-1"},
		},
		Spec: corev1.NodeSpec{ProviderID: "azure:///" + name},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start)}},
		},
	}
}

// leave marks an object as being deleted.
func leave[T client.Object](object T) T {
	at := metav1.NewTime(start.Add(5 * time.Minute))
	object.SetDeletionTimestamp(&at)
	object.SetFinalizers([]string{"example.dev/hold"})
	return object
}

func clientOf(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects = append(slices.Clone(objects), &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "uid-1"}})
	for _, object := range objects { // as the cache has them
		if _, err := workload.Keep(object); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&corev1.Event{}, events.SubjectIndex, Subject).Build()
}

// prices returns the prices of a catalogue with one machine type.
func prices(instanceType string, _ v1beta1.CapacityType) float64 {
	if instanceType != "Standard_NC24ads_A100_v4" {
		return unpriced
	}
	return 3.673
}

func newProvisioner(t *testing.T, objects ...client.Object) (*Provisioner, client.WithWatch) {
	t.Helper()
	api := clientOf(t, objects...)
	return New(api, api, testingclock.NewFakePassiveClock(start.Add(time.Hour)), prices), api
}

func TestObserve(t *testing.T) {
	set := setOf(2, 1)
	base := capacity.Machine{
		Name: "team-a/chat-0.2", UID: "set-2-0", InstanceType: "Standard_NC24ads_A100_v4", CapacityType: "on-demand",
		HourlyPrice: 3.673, CreatedAt: start,
	}
	with := func(change func(*capacity.Machine)) []capacity.Machine {
		out := base
		change(&out)
		return []capacity.Machine{out}
	}
	waits := func(m *capacity.Machine) {
		m.CreatedAt, m.Reason, m.Message = start.Add(time.Minute), "Unschedulable", "0/3 nodes are available"
	}
	onNode := func(m *capacity.Machine) {
		m.NodeReady, m.NodeSince, m.ProviderID, m.Zone = true, start, "azure:///gpu-1", "eastus-1"
	}
	blind := func(age time.Duration) []capacity.Machine {
		return with(func(m *capacity.Machine) {
			waits(m)
			onNode(m)
			came := refusal.Condition{Status: refusal.StatusTrue, Since: start.Add(age)}
			m.Launched, m.Registered, m.NodeName, m.Words = true, true, "gpu-1", capacity.Words{Launched: came, Registered: came}
			m.Reason, m.Message = "", "node gpu-1 advertises fewer GPUs than the pod requests: check its device plugin"
		})
	}
	ordinary := nodeOf("0", 2*time.Minute)
	ordinary.Labels[corev1.LabelInstanceTypeStable] = "Standard_D4s_v5"
	answer := said(90, notTriggered, "pod didn't trigger scale-up: 1 max node group size reached")
	answer.Namespace, answer.Name, answer.InvolvedObject = "team-a", "e", corev1.ObjectReference{Kind: "Pod", UID: "pod-2-0"}
	tests := []struct {
		reason  string
		objects []client.Object
		want    []capacity.Machine
	}{
		{"nothing is held", nil, nil},
		{"a set that does not ask is no machine", []client.Object{func() *appsv1.StatefulSet {
			plain := setOf(2, 1)
			plain.Spec.Template.Annotations = nil
			return plain
		}()}, nil},
		{"there is no pod yet", []client.Object{set}, with(func(m *capacity.Machine) {
			m.Message = "the StatefulSet has not created the pod yet: kubectl describe statefulset shows why"
		})},
		{"a pod waits", []client.Object{set, podOf(set, 2, 0, "")}, with(waits)},
		{"a pod waits, and was answered", []client.Object{set, podOf(set, 2, 0, ""), &answer}, with(func(m *capacity.Machine) {
			waits(m)
			m.Words.Launched = refusal.Condition{
				Status: refusal.StatusUnknown, Reason: answer.Reason, Message: answer.Message, Since: start.Add(90 * time.Second),
			}
			m.Reason, m.Message = answer.Reason, answer.Message
		})},
		{"a node has come without its GPUs", []client.Object{set, podOf(set, 2, 0, ""), nodeOf("0", 2*time.Minute)}, blind(2 * time.Minute)},
		{"it has come in the pod's second", []client.Object{set, podOf(set, 2, 0, ""), nodeOf("0", time.Minute)}, blind(time.Minute)},
		{"an ordinary node has come", []client.Object{set, podOf(set, 2, 0, ""), ordinary}, with(waits)},
		{"a node without GPUs was there before", []client.Object{set, podOf(set, 2, 0, ""), nodeOf("0", 0)}, with(waits)},
		{"a node has come whose GPUs are another's", []client.Object{set, podOf(set, 2, 0, ""), nodeOf("1", 2*time.Minute)}, with(waits)},
		{"a pod has its node", []client.Object{set, podOf(set, 2, 0, "gpu-1"), nodeOf("1", 0)}, with(func(m *capacity.Machine) {
			onNode(m)
			there := refusal.Condition{Status: refusal.StatusTrue, Since: start.Add(2 * time.Minute)}
			m.Launched, m.Registered, m.Initialized, m.NodeName, m.GPUs = true, true, true, "gpu-1", 1
			m.Words = capacity.Words{Launched: there, Registered: there, Initialized: there}
		})},
		{"a pod makes room for its successor", []client.Object{set, leave(podOf(set, 2, 0, "gpu-1")), nodeOf("1", 0)}, with(func(m *capacity.Machine) {
			onNode(m)
			there := refusal.Condition{Status: refusal.StatusTrue, Since: start.Add(2 * time.Minute)}
			m.Launched, m.Registered, m.Initialized, m.NodeName, m.GPUs = true, true, true, "gpu-1", 1
			m.Words = capacity.Words{Launched: there, Registered: there, Initialized: there}
		})},
		{"the set is gone, and its pod goes", []client.Object{leave(podOf(set, 2, 0, ""))}, with(func(m *capacity.Machine) {
			waits(m)
			m.Deleting, m.DeletingSince = true, start.Add(5*time.Minute)
		})},
		{"the set is gone, and its pod is not told yet", []client.Object{podOf(set, 2, 0, "")}, with(func(m *capacity.Machine) {
			waits(m)
			m.Deleting = true
		})},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p, _ := newProvisioner(t, test.objects...)
			for i, object := range test.objects { // the affinity of what is aimed
				if pod, ok := object.(*corev1.Pod); ok {
					aimed := &corev1.PodTemplateSpec{}
					if err := p.PinPods(requestOf(v1beta1.CapacityOnDemand), aimed); err != nil {
						t.Fatal(err)
					}
					pod.Spec.Affinity = aimed.Spec.Affinity
					test.objects[i] = pod
				}
			}
			p, _ = newProvisioner(t, test.objects...)
			got, err := p.Observe(t.Context(), owner(), nil, "nvidia.com/gpu")
			if err != nil {
				t.Fatal(err)
			}
			for i := range got { // the client reads them in local time
				got[i].CreatedAt, got[i].DeletingSince, got[i].NodeSince = utc(got[i].CreatedAt), utc(got[i].DeletingSince), utc(got[i].NodeSince)
				for _, c := range []*refusal.Condition{&got[i].Words.Launched, &got[i].Words.Registered, &got[i].Words.Initialized} {
					c.Since = utc(c.Since)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func utc(at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return at.UTC()
}

func TestEnsure(t *testing.T) {
	tests := []struct {
		reason  string
		objects []client.Object
		stale   bool // the cache is empty
		count   int
		want    string
	}{
		{"nothing is there", nil, false, 1, "confirm, make, created [team-a/chat-0.2]"},
		{"all is there", []client.Object{setOf(2, 1)}, false, 1, "nothing"},
		{"all is there, and the cache does not show it", []client.Object{setOf(2, 1)}, true, 1, "nothing"},
		{"another attempt's set is there", []client.Object{setOf(1, 1)}, false, 1, "confirm, released [team-a/chat-0.1]"},
		{"another attempt's set is there, and the cache does not show it", []client.Object{setOf(1, 1)}, true, 1, "confirm, released [team-a/chat-0.1]"},
		{"another attempt's pods are on their way out", []client.Object{leave(podOf(setOf(1, 1), 1, 0, "gpu-1"))}, false, 1, "nothing"},
		{"more are asked for", []client.Object{setOf(2, 1)}, false, 2, "confirm, make, created [team-a/chat-0.2 team-a/chat-1.2]"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			_, live := newProvisioner(t, test.objects...)
			cached := live
			if test.stale {
				cached = clientOf(t)
			}
			var did []string
			req := requestOf(v1beta1.CapacityOnDemand)
			req.Attempt, req.Count = 2, test.count
			req.Confirm = func(context.Context) error { did = append(did, "confirm"); return nil }
			req.MakePods = func(context.Context) error { did = append(did, "make"); return nil }
			outcome, err := New(cached, live, testingclock.NewFakePassiveClock(start), prices).Ensure(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if len(outcome.Released) > 0 {
				did = append(did, fmt.Sprintf("released %v", outcome.Released))
			}
			var created []string
			for _, machine := range outcome.Created {
				created = append(created, machine.Name)
			}
			if created != nil {
				did = append(did, fmt.Sprintf("created %v", created))
			}
			if did == nil {
				did = []string{"nothing"}
			}
			if got := strings.Join(did, ", "); got != test.want {
				t.Errorf("it did %s, want %s", got, test.want)
			}
		})
	}
}

// TestEnsureUnconfirmed: a pass with an outdated Workspace neither creates nor deletes anything.
func TestEnsureUnconfirmed(t *testing.T) {
	unknown := errors.New("there is a newer one")
	for _, objects := range [][]client.Object{nil, {setOf(1, 1)}} {
		p, api := newProvisioner(t, objects...)
		req := requestOf(v1beta1.CapacityOnDemand)
		req.Confirm = func(context.Context) error { return unknown }
		req.MakePods = func(context.Context) error { t.Error("made pods"); return nil }
		if _, err := p.Ensure(t.Context(), req); !errors.Is(err, unknown) {
			t.Errorf("error %v, want %v", err, unknown)
		}
		sets := &appsv1.StatefulSetList{}
		if err := api.List(t.Context(), sets); err != nil || len(sets.Items) != len(objects) {
			t.Errorf("%d sets, %v; want %d", len(sets.Items), err, len(objects))
		}
	}
}

func TestRelease(t *testing.T) {
	set := setOf(1, 2)
	orphan := podOf(set, 1, 0, "gpu-1")
	orphan.OwnerReferences = nil
	tests := []struct {
		reason  string
		objects []client.Object
		want    []string
		left    []string
	}{
		{"nothing is held", nil, nil, nil},
		{"a set goes once, its pods with it", []client.Object{set}, []string{"team-a/chat-0.1", "team-a/chat-1.1"}, nil},
		{"a pod that its set left behind goes", []client.Object{orphan}, []string{"team-a/chat-0.1"}, nil},
		{
			"a pod that ends by itself is waited for",
			[]client.Object{leave(podOf(set, 1, 0, "gpu-1")), nodeOf("1", 0)},
			[]string{"team-a/chat-0.1"},
			[]string{"chat-0"},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p, api := newProvisioner(t, test.objects...)
			got, err := p.Release(t.Context(), owner())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			var left []string
			pods, sets := &corev1.PodList{}, &appsv1.StatefulSetList{}
			if err := errors.Join(api.List(t.Context(), pods), api.List(t.Context(), sets)); err != nil {
				t.Fatal(err)
			}
			for i := range pods.Items {
				left = append(left, pods.Items[i].Name)
			}
			for i := range sets.Items {
				left = append(left, sets.Items[i].Name)
			}
			if !slices.Equal(left, test.left) {
				t.Errorf("left are %v, want %v", left, test.left)
			}
		})
	}
}

// TestReleaseDeletesStuckPods: if no kubelet can report the end of a pod, the pod is force-deleted, but not before its
// deadline.
func TestReleaseDeletesStuckPods(t *testing.T) {
	silent := nodeOf("1", 0)
	silent.Status.Conditions[0].Status = corev1.ConditionUnknown
	tests := []struct {
		reason  string
		objects []client.Object
		now     time.Duration
		want    int
	}{
		{"its node answers", []client.Object{nodeOf("1", 0)}, time.Hour, 0},
		{"its node is silent", []client.Object{silent}, time.Hour, 1},
		{"its node is gone", nil, time.Hour, 1},
		{"it may still end by itself", []client.Object{silent}, 4 * time.Minute, 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			forGood := 0
			api := interceptor.NewClient(clientOf(t, append(test.objects, leave(podOf(setOf(1, 1), 1, 0, "gpu-1")))...), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
					asked := (&client.DeleteOptions{}).ApplyOptions(options)
					if object.GetName() != "chat-0" || asked.GracePeriodSeconds == nil || *asked.GracePeriodSeconds != 0 {
						t.Errorf("deletes %T %s with %+v", object, object.GetName(), asked)
					}
					forGood++
					return nil
				},
			})
			p := New(api, api, testingclock.NewFakePassiveClock(start.Add(test.now)), prices)
			if _, err := p.Release(t.Context(), owner()); err != nil {
				t.Fatal(err)
			}
			if forGood != test.want {
				t.Errorf("deleted for good: %d, want %d", forGood, test.want)
			}
		})
	}
}

// TestHeldOwnersAndMachineCosts: the objects alone show other owners of that name, and the live machines.
func TestHeldOwnersAndMachineCosts(t *testing.T) {
	stranger := podOf(setOf(1, 1), 1, 0, "")
	stranger.Name, stranger.Labels[v1beta1.LabelWorkspaceUID] = "chat-5", "uid-0"
	p, _ := newProvisioner(t, setOf(2, 2), podOf(setOf(2, 2), 2, 1, "gpu-1"), stranger)
	held, err := p.Held(t.Context(), owner(), nil)
	if err != nil || !slices.Equal(capacity.MachineNames(held), []string{"team-a/chat-0.2", "team-a/chat-1.2"}) {
		t.Errorf("held %v, %v", held, err)
	}
	owners, err := p.Owners(t.Context(), "team-a", "chat")
	former := owner()
	former.UID = "uid-0"
	if diff := cmp.Diff([]capacity.Owner{former, owner()}, owners); diff != "" || err != nil {
		t.Errorf("owners %v (-want +got):\n%s", err, diff)
	}
	costs, err := p.LiveMachineCosts(t.Context())
	bill := func(owner capacity.Owner, machine string, uid types.UID, launched bool) capacity.MachineCost {
		return capacity.MachineCost{
			Owner: owner, Machine: machine, UID: uid, InstanceType: "Standard_NC24ads_A100_v4", HourlyPrice: 3.673, Launched: launched,
			CapacityType: v1beta1.CapacityOnDemand,
		}
	}
	running := bill(owner(), "team-a/chat-1.2", "set-2-1", true)
	running.LaunchedAt = scheduledAt(podOf(setOf(2, 2), 2, 1, "gpu-1"))
	left := bill(former, "team-a/chat-5.1", "set-1-5", false)
	left.Leaving, left.HourlyPrice = true, unpriced // its Workspace is gone
	want := []capacity.MachineCost{bill(owner(), "team-a/chat-0.2", "set-2-0", false), running, left}
	if diff := cmp.Diff(want, costs); diff != "" || err != nil {
		t.Errorf("costs %v (-want +got):\n%s", err, diff)
	}
	if running.LaunchedAt.IsZero() {
		t.Error("the machine of a running pod has no beginning")
	}
}

// TestOnlyAPodWithoutSuccessorFreesMoney: a replaced pod frees no money, so it wakes no Workspace that waits for
// money.
func TestOnlyAPodWithoutSuccessorFreesMoney(t *testing.T) {
	set, smaller := setOf(1, 2), setOf(1, 1)
	other := podOf(set, 1, 0, "")
	other.Annotations = nil
	for _, test := range []struct {
		reason  string
		objects []client.Object
		deleted client.Object
		want    bool
	}{
		{"its StatefulSet makes another one", []client.Object{set}, podOf(set, 1, 1, ""), false},
		{"its StatefulSet has been made smaller", []client.Object{smaller}, podOf(smaller, 1, 1, ""), true},
		{"its StatefulSet goes", []client.Object{leave(setOf(1, 2))}, podOf(set, 1, 1, ""), true},
		{"its StatefulSet is gone", nil, podOf(set, 1, 1, ""), true},
		{"it asked for no machine", nil, other, false},
		{"it is a node", nil, nodeOf("1", 0), false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			p, _ := newProvisioner(t, test.objects...)
			if got := p.Frees(t.Context(), test.deleted); got != test.want {
				t.Errorf("it frees money: %v, want %v", got, test.want)
			}
		})
	}
}

// TestHolders expects the owners of pods that request machines, whether the pods exist or are due.
func TestHolders(t *testing.T) {
	stranger, idle := podOf(setOf(1, 1), 1, 0, ""), setOf(1, 1)
	stranger.Name, stranger.Labels[v1beta1.LabelWorkspaceUID] = "chat-5", "uid-0"
	idle.Name, idle.UID, idle.Spec.Template.Annotations = "other", "other", nil
	p, _ := newProvisioner(t, setOf(2, 2), stranger, idle)
	got, err := p.Holders(t.Context())
	if diff := cmp.Diff([]capacity.Owner{owner()}, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
}
