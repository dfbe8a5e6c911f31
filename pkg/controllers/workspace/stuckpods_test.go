// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

// deletions is a client that records the UIDs of pods deleted without grace.
type deletions struct {
	client.Client

	forced []types.UID
}

func (d *deletions) Delete(_ context.Context, _ client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0 && options.Preconditions != nil {
		d.forced = append(d.forced, *options.Preconditions.UID)
	}
	return nil
}

// TestNoStuckPods checks which pods are deleted without their kubelet. A StatefulSet's pod that may still run must not
// be deleted.
func TestNoStuckPods(t *testing.T) {
	const node = "node-1"
	bought, leaving := map[string]string{v1beta1.LabelWorkspaceUID: "uid-1"}, metav1.NewTime(now.Add(-time.Second))
	notReady := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
	}}}
	ofOurs := notReady
	ofOurs.Labels = bought
	for _, test := range []struct {
		reason   string
		selector map[string]string
		on       string
		leaving  *metav1.Time
		// seen is the node in the cache, and live the node in the API server.
		seen, live *corev1.Node
		machines   []capacity.Machine
		want       bool
	}{
		{reason: "its machine and its node are gone", selector: bought, on: node, want: true},
		{reason: "so they are, and the pod was told to go", selector: bought, on: node, leaving: &leaving, want: true},
		{reason: "another machine came in its place", selector: bought, on: node, machines: []capacity.Machine{{Name: "b", NodeName: "node-2"}}, want: true},
		{reason: "it is on no node", selector: bought},
		{reason: "its machine is on its way out", selector: bought, on: node, machines: []capacity.Machine{{Name: "a", NodeName: node, Deleting: true}}},
		{reason: "its node was deleted by hand, the machine is held", selector: bought, on: node, machines: []capacity.Machine{{Name: "a", NodeName: node}}},
		{reason: "its node is new", selector: bought, on: node, live: &ofOurs},
		{reason: "nobody bought its node: that it is gone says nothing of the machine", on: node, leaving: &leaving},
		{reason: "it was bought for another Workspace of that name", selector: map[string]string{v1beta1.LabelWorkspaceUID: "uid-0"}, on: node},
		{reason: "its machine may answer again, else its claim goes", selector: bought, on: node, leaving: &leaving, seen: &ofOurs, live: &ofOurs},
		{reason: "a node of others is silent for too long", on: node, leaving: &leaving, seen: &notReady, live: &notReady, want: true},
		{reason: "nobody told that one to go", on: node, seen: &notReady, live: &notReady},
	} {
		t.Run(test.reason, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat-0", UID: "pod-1"},
				Spec:       corev1.PodSpec{NodeName: test.on, NodeSelector: test.selector},
			}
			pod.DeletionTimestamp = test.leaving
			var objects []client.Object
			if test.live != nil {
				objects = append(objects, test.live.DeepCopy())
			}
			byName := func(object client.Object) []string { return []string{object.GetName()} }
			kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
				WithIndex(&corev1.Node{}, metav1.ObjectNameField, byName).Build()
			deletions := &deletions{Client: kube}
			r := New(Config{
				Client: deletions, Live: kube, Clock: testclock.NewFakePassiveClock(now.Time), Acquisition: acquire.Settings{NodeGrace: time.Minute},
			})
			s := scope.New(workspaceObject())
			s.Pods, s.Machines = []corev1.Pod{*pod}, test.machines
			if test.seen != nil {
				s.Nodes = []corev1.Node{*test.seen}
			}
			if err := r.workloads.ensureNoStuckPods(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			var want []types.UID
			if test.want {
				want = []types.UID{"pod-1"}
			}
			if diff := cmp.Diff(want, deletions.forced); diff != "" {
				t.Errorf("deleted at once (-want +got):\n%s", diff)
			}
		})
	}
}
