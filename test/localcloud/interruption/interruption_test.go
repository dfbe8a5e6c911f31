// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/script"
)

type machines []cloud.Machine

func (m *machines) List(context.Context) ([]cloud.Machine, error) { return *m, nil }

type recorder struct{ said []string }

func (r *recorder) Publish(all ...events.Event) {
	for _, e := range all {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", e.InvolvedObject), "*v1.")
		r.said = append(r.said, kind+" "+e.Reason)
	}
}

// world is the remainder of one machine's node and claim, and the events about them.
type world struct {
	Node       bool
	Conditions string
	Claim      bool
	Events     []string
}

func newWorld(t *testing.T, m cloud.Machine, registered bool) (kube client.Client, see func(*recorder) world) {
	t.Helper()
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "c"}, Status: karpv1.NodeClaimStatus{ProviderID: m.ProviderID}}
	other := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "o"}, Status: karpv1.NodeClaimStatus{ProviderID: "local://m-9"}}
	objects := []client.Object{claim, other}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "n"}, Spec: corev1.NodeSpec{ProviderID: m.ProviderID},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}}},
	}
	if registered {
		objects = append(objects, node)
	}
	kube = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(node).Build()
	return kube, func(r *recorder) world {
		w := world{Events: r.said}
		var nodes corev1.NodeList
		var claims karpv1.NodeClaimList
		for _, list := range []client.ObjectList{&nodes, &claims} {
			if err := kube.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		w.Node, w.Claim = len(nodes.Items) == 1, len(claims.Items) == 2
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				w.Conditions += fmt.Sprintf("%s=%s ", c.Type, c.Status)
			}
		}
		return w
	}
}

func TestReconcile(t *testing.T) {
	untouched := world{Node: true, Conditions: "Ready=True ", Claim: true}
	told := func(condition string) world {
		return world{Node: true, Conditions: "Ready=True " + condition + " ", Claim: true}
	}
	interrupted := world{Node: true, Conditions: "Ready=True ", Events: []string{
		"NodeClaim SpotInterrupted", "NodeClaim TerminatingOnInterruption", "Node SpotInterrupted", "Node TerminatingOnInterruption",
	}}
	for _, test := range []struct {
		reason string
		fate   *script.Rule
		due    bool
		gone   bool
		late   bool // the node registers only afterwards
		want   world
	}{
		{reason: "no fate", want: untouched},
		{reason: "a fate whose time has not come", fate: &script.Rule{Outcome: script.GPUFault}, want: untouched},
		{reason: "broken GPUs", fate: &script.Rule{Outcome: script.GPUFault}, due: true, want: told("AcceleratedHardwareReady=False")},
		{reason: "broken GPUs on Azure", fate: &script.Rule{Outcome: script.GPUFault, Cloud: script.Azure}, due: true, want: told("kubernetes.azure.com/NodeHealthy=False")},
		{
			reason: "broken GPUs in the script's words", due: true,
			fate: &script.Rule{Outcome: script.GPUFault, Condition: script.Condition{Type: "GPUMissing", Status: "True"}}, want: told("GPUMissing=True"),
		},
		{reason: "an eviction", fate: &script.Rule{Outcome: script.Evicted}, due: true, want: interrupted},
		{reason: "an eviction on Azure", fate: &script.Rule{Outcome: script.Evicted, Cloud: script.Azure}, due: true, want: told("PreemptionScheduled=True")},
		{reason: "an eviction before the node is there", fate: &script.Rule{Outcome: script.Evicted}, due: true, late: true, want: world{Events: interrupted.Events[:2]}},
		{reason: "a silent kubelet says nothing", fate: &script.Rule{Outcome: script.NotReady}, due: true, want: untouched},
		{reason: "a dead machine's node is missed by others", fate: &script.Rule{Outcome: script.Dies}, gone: true, want: untouched},
		{reason: "or goes with it", fate: &script.Rule{Outcome: script.Dies, RemoveNode: true}, gone: true, want: world{Claim: true}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			m := cloud.Machine{Request: cloud.Request{Name: "gpu"}, ID: "m-1", ProviderID: "local://m-1", Fate: test.fate, Due: test.due}
			kube, see := newWorld(t, m, !test.late)
			list, said := &machines{m}, &recorder{}
			c := New(kube, list, said)
			// Twice, since nothing is to be told twice.
			for range 2 {
				if _, err := c.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if test.gone {
				*list = nil
				if _, err := c.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, see(said)); diff != "" {
				t.Errorf("the cluster (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFaultIsToldOnceTheNodeIsThere(t *testing.T) {
	m := cloud.Machine{Request: cloud.Request{Name: "gpu"}, ID: "m-1", ProviderID: "local://m-1", Fate: &script.Rule{Outcome: script.GPUFault}, Due: true}
	kube, see := newWorld(t, m, false)
	c, said := New(kube, &machines{m}, nil), &recorder{}
	if _, err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: corev1.NodeSpec{ProviderID: m.ProviderID}}
	if err := kube.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(world{Node: true, Conditions: "AcceleratedHardwareReady=False ", Claim: true}, see(said)); diff != "" {
		t.Errorf("the cluster (-want +got):\n%s", diff)
	}
}

func TestAnotherMachinesNodeIsLeftAlone(t *testing.T) {
	m := cloud.Machine{Request: cloud.Request{Name: "gpu"}, ID: "m-1", ProviderID: "local://m-1", Fate: &script.Rule{Outcome: script.Dies, RemoveNode: true}}
	successor := m
	successor.ProviderID = "local://m-2"
	kube, see := newWorld(t, successor, true)
	list, said := &machines{m}, &recorder{}
	c := New(kube, list, said)
	for range 2 {
		if _, err := c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		*list = nil
	}
	if !see(said).Node {
		t.Error("the node of the machine that took the name was removed")
	}
}
