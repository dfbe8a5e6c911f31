// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// described is a provisioner whose node class is in a state, and says so.
type described struct {
	Provisioner
	state refusal.ClassState
	words string
}

func (d described) Class(context.Context, v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return d.state, d.words, nil
}

// site is where something is to be bought: it has a node that is Ready, a node class and a device plugin, and
// each case takes one of them away.
type site struct {
	nodes     []client.Object
	class     described
	plugins   []client.Object
	operator  bool
	forbidden bool
	unchecked bool
	change    func(*revision)
	// lists counts how often the API server was asked for DaemonSets.
	lists int
}

func someNode(name string, ready corev1.ConditionStatus, labels map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if ready != "" {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	}
	return node
}

func plugin(tolerations ...corev1.Toleration) *appsv1.DaemonSet {
	out := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "nvidia-device-plugin"}}
	out.Spec.Template.Spec.Tolerations = tolerations
	return out
}

// begin returns a Reconciler at the site.
func (at *site) begin(t *testing.T, clock *testclock.FakePassiveClock) *Reconciler {
	t.Helper()
	operator := schema.GroupVersionKind{Group: "nvidia.com", Version: "v1", Kind: "ClusterPolicy"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{operator.GroupVersion()})
	if at.operator {
		mapper.Add(operator, meta.RESTScopeRoot)
	}
	kube := fake.NewClientBuilder().WithRESTMapper(mapper).WithObjects(at.nodes...).WithObjects(at.plugins...).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, isPlugins := list.(*appsv1.DaemonSetList); isPlugins {
					at.lists++
					if at.forbidden {
						return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "daemonsets"}, "", errors.New("no"))
					}
				}
				return inner.List(ctx, list, options...)
			},
		}).Build()
	return New(Config{
		Client: kube, Live: kube, Catalog: noCatalog{}, Provisioner: at.class, Clock: clock, GPUPluginCheck: !at.unchecked,
		NodeClasses: []v1beta1.NodeClassReference{{Group: "some.dev", Kind: "SomeNodeClass", Name: "gpu"}},
	})
}

// TestPreflight says word by word what keeps money from being spent.
func TestPreflight(t *testing.T) {
	const (
		nothing   = "nothing is bought yet: "
		noPlugin  = nothing + "nothing would advertise nvidia.com/gpu on a node with the taint sku=gpu:NoSchedule: "
		otherwise = ", or set the chart's capacity.gpuPluginCheck to false if the nodes bring one of their own"
		install   = noPlugin + "set the chart's devicePlugin.enabled, or install a device plugin or GPU operator that tolerates it" + otherwise
	)
	tolerant := plugin(corev1.Toleration{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists})
	ours := map[string]string{v1beta1.LabelWorkspaceUID: "uid-2"}
	silent := []client.Object{someNode("system-1", corev1.ConditionUnknown, nil), someNode("system-2", "", nil)}
	unsettled := nothing + "none of the cluster's own nodes is Ready (there are 2): the cluster is starting, or its control plane has lost contact with their kubelets; " +
		"kubectl get nodes shows them; the controller continues once one is Ready"
	tests := []struct {
		reason string
		change func(*site)
		want   string
		// isStalled says that somebody has to act.
		isStalled bool
	}{
		{"all is there", func(*site) {}, "", false},
		{"a node class that is missing", func(at *site) {
			at.class = described{state: refusal.ClassMissing, words: `SomeNodeClass "gpu" does not exist`}
		}, nothing + `SomeNodeClass "gpu" does not exist: create it, or name another one in the chart's nodeClasses`, true},
		{"a node class that is not ready", func(at *site) {
			at.class = described{state: refusal.ClassNotReady, words: `SomeNodeClass "gpu" is not ready: SubnetsReady=False`}
		}, nothing + `SomeNodeClass "gpu" is not ready: SubnetsReady=False: fix what its conditions report`, true},
		{"a node class that says nothing of itself", func(at *site) { at.class.state = refusal.ClassNotSeen }, "", false},
		{"no device plugin", func(at *site) { at.plugins = nil }, install, true},
		{
			"a device plugin that does not tolerate our taint", func(at *site) { at.plugins = []client.Object{plugin()} },
			noPlugin + "add the toleration to DaemonSet gpus/nvidia-device-plugin" + otherwise, true,
		},
		{"a GPU operator, which makes its plugin later", func(at *site) { at.plugins, at.operator = nil, true }, "", false},
		{"nobody may look for plugins", func(at *site) { at.plugins, at.forbidden = nil, true }, "", false},
		{"the administrator says that nodes bring their own", func(at *site) { at.plugins, at.unchecked = nil, true }, "", false},
		{"a machine without GPUs needs none", func(at *site) {
			at.plugins, at.change = nil, func(made *revision) { made.Plan.MachineGPUs = 0 }
		}, "", false},
		{"a cluster that has just been started", func(at *site) { at.nodes = silent }, unsettled, false},
		{"whose only Ready node was bought", func(at *site) {
			at.nodes = slices.Concat(silent, []client.Object{someNode("chat-0", corev1.ConditionTrue, ours)})
		}, unsettled, false},
		{"one node is enough", func(at *site) {
			at.nodes = slices.Concat(silent, []client.Object{someNode("system-3", corev1.ConditionTrue, nil)})
		}, "", false},
		{"the first nodes may be ours", func(at *site) { at.nodes = nil }, "", false},
		{"and need not be Ready", func(at *site) {
			at.nodes = []client.Object{someNode("chat-0", corev1.ConditionFalse, ours)}
		}, "", false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			at := &site{
				nodes: []client.Object{someNode("system-1", corev1.ConditionTrue, nil)}, class: described{state: refusal.ClassReady},
				plugins: []client.Object{tolerant}, change: func(*revision) {},
			}
			test.change(at)
			made := accepted(1)
			at.change(made)
			err := at.begin(t, testclock.NewFakePassiveClock(now.Time)).checkPrepared(t.Context(), made)
			got, after := "", time.Duration(0)
			stalled, isStalled := errors.AsType[*stalledError](err)
			waiting, isWaiting := errors.AsType[*waitingError](err)
			switch {
			case isStalled && stalled.reason == v1beta1.ReasonMisconfigured:
				got, after = stalled.message, stalled.retryAfter
			case isWaiting:
				got, after = waiting.message, waiting.after
			case err != nil:
				t.Fatal(err)
			}
			if got != test.want || isStalled != test.isStalled {
				t.Errorf("stalled %t\n got %s\nwant %s", isStalled, got, test.want)
			}
			if err != nil && after != time.Minute {
				t.Errorf("it is looked at again after %s, want a minute", after)
			}
		})
	}
}

// TestPreflightRemembers: what is there is not looked for again by each Workspace, and what was missing is
// found soon after it came.
func TestPreflightRemembers(t *testing.T) {
	at := &site{class: described{state: refusal.ClassReady}}
	clock := testclock.NewFakePassiveClock(now.Time)
	r := at.begin(t, clock)
	check := func(after time.Duration, isMissing bool, lists int) {
		t.Helper()
		clock.SetTime(now.Add(after))
		if err := r.checkPrepared(t.Context(), accepted(1)); (err != nil) != isMissing || at.lists != lists {
			t.Errorf("after %s: %v, and %d looks; want it to be missing: %t, and %d", after, err, at.lists, isMissing, lists)
		}
	}
	check(0, true, 1)
	check(50*time.Second, true, 1)
	if err := r.Client.Create(t.Context(), plugin(corev1.Toleration{Operator: corev1.TolerationOpExists})); err != nil {
		t.Fatal(err)
	}
	check(time.Minute, false, 2)
	check(10*time.Minute, false, 2)
	check(12*time.Minute, false, 3)
}

// TestMistakesComeFirst: what the user has to mend is said whatever state the cluster is in.
func TestMistakesComeFirst(t *testing.T) {
	at := &site{nodes: []client.Object{someNode("system-1", corev1.ConditionUnknown, nil)}}
	r := at.begin(t, testclock.NewFakePassiveClock(now.Time))
	r.NodeClasses = []v1beta1.NodeClassReference{{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "default"}}
	made := accepted(1)
	made.Plan.Zones = []string{"eastus-1"}
	err := r.checkPrepared(t.Context(), made)
	stalled, isStalled := errors.AsType[*stalledError](err)
	if !isStalled || stalled.reason != v1beta1.ReasonSpecInvalid || !strings.Contains(stalled.message, "leave zones out") {
		t.Errorf("%v; want the zones that cannot be had, before the node that is not Ready", err)
	}
}
