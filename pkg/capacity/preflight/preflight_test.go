// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/lookup"
	"github.com/modelberth/modelberth/pkg/progress"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// described reports one state for every node class.
type described struct {
	state refusal.ClassState
	words string
}

func (d described) Class(context.Context, v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return d.state, d.words, nil
}

// site is a cluster with a Ready node, a node class and a device plugin. Each case removes one of them.
type site struct {
	nodes     []client.Object
	class     preflight.Classes
	plugins   []client.Object
	operator  bool
	forbidden bool
	unchecked bool
	// dedication is the policy for the taint of a Workspace.
	dedication preflight.Dedication
	change     func(*preflight.Purchase)
	// lists counts the reads of DaemonSets from the API server.
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

// checker returns a Checker of the site.
func (at *site) checker(t *testing.T, clock *testclock.FakePassiveClock) (*preflight.Checker, client.Client) {
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
	policy := preflight.Policy{DevicePlugins: !at.unchecked, Dedication: at.dedication, DaemonSetNamespaces: []string{"gpu*"}}
	cluster := preflight.Cluster{Cached: kube, Live: kube, Classes: at.class, LocalDiskGiB: func(string) float64 { return 0 }}
	return preflight.New(policy, cluster, clock), kube
}

// purchase returns the purchase of a machine with GPUs.
func purchase() preflight.Purchase {
	return preflight.Purchase{
		Workspace: types.NamespacedName{Namespace: "team-a", Name: "chat"}, UID: "uid-1",
		InstanceType: "Standard_NC24ads_A100_v4", GPUResource: "nvidia.com/gpu",
		NodeClass: v1beta1.NodeClassReference{Group: "some.dev", Kind: "SomeNodeClass", Name: "gpu"},
	}
}

// TestCheck compares the messages word by word.
func TestCheck(t *testing.T) {
	const (
		nothing   = "nothing is bought yet: "
		noPlugin  = nothing + "nothing would advertise nvidia.com/gpu on a node with the taint sku=gpu:NoSchedule: "
		otherwise = ", or set the chart's capacity.gpuPluginCheck to false if the nodes' images contain a device plugin"
		install   = noPlugin + "set the chart's devicePlugin.enabled, or install a device plugin or GPU operator that tolerates the taint, " +
			"in a namespace of capacity.daemonSetNamespaces" + otherwise
	)
	tolerant := plugin(corev1.Toleration{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists})
	ours := map[string]string{v1beta1.LabelWorkspaceUID: "uid-2"}
	silent := []client.Object{someNode("system-1", corev1.ConditionUnknown, nil), someNode("system-2", "", nil)}
	unsettled := nothing + "none of the cluster's own nodes is Ready (0 of 2): the cluster is starting, or the control plane has lost contact with the kubelets; run kubectl " +
		"get nodes; the controller continues once a node is Ready"
	tests := []struct {
		reason string
		change func(*site)
		want   string
		// isStalled: a person must act.
		isStalled bool
	}{
		{"all is there", func(*site) {}, "", false},
		{"a node class that is missing", func(at *site) {
			at.class = described{state: refusal.ClassMissing, words: `SomeNodeClass "gpu" does not exist`}
		}, nothing + `SomeNodeClass "gpu" does not exist: create it, or name another one in the chart's nodeClasses`, true},
		{"a node class that is not ready", func(at *site) {
			at.class = described{state: refusal.ClassNotReady, words: `SomeNodeClass "gpu" is not ready: SubnetsReady=False`}
		}, nothing + `SomeNodeClass "gpu" is not ready: SubnetsReady=False: fix what its conditions report`, true},
		{"a node class that says nothing of itself", func(at *site) { at.class = described{state: refusal.ClassNotSeen} }, "", false},
		{"no device plugin", func(at *site) { at.plugins = nil }, install, true},
		{
			"a device plugin that does not tolerate our taint", func(at *site) { at.plugins = []client.Object{plugin()} },
			noPlugin + "add a toleration of the taint to DaemonSet gpus/nvidia-device-plugin" + otherwise, true,
		},
		{"a GPU operator, which makes its plugin later", func(at *site) { at.plugins, at.operator = nil, true }, "", false},
		{"nobody may look for plugins", func(at *site) { at.plugins, at.forbidden = nil, true }, "", false},
		{"the administrator says that nodes bring their own", func(at *site) { at.plugins, at.unchecked = nil, true }, "", false},
		{"a machine without GPUs needs none", func(at *site) {
			at.plugins, at.change = nil, func(p *preflight.Purchase) { p.GPUResource = "" }
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
				plugins: []client.Object{tolerant}, change: func(*preflight.Purchase) {},
			}
			test.change(at)
			p := purchase()
			at.change(&p)
			checker, _ := at.checker(t, testclock.NewFakePassiveClock(now))
			err := checker.Check(t.Context(), p)
			got, after := "", time.Duration(0)
			stalled, isStalled := errors.AsType[*progress.StalledError](err)
			waiting, isWaiting := errors.AsType[*progress.WaitingError](err)
			switch {
			case isStalled && stalled.Reason == v1beta1.ReasonMisconfigured:
				got, after = stalled.Message, stalled.RetryAfter
			case isWaiting:
				got, after = waiting.Message, waiting.After
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

// TestReadsAreShared: Workspaces share the results of reads, and each retry of a failed check reads again.
func TestReadsAreShared(t *testing.T) {
	at := &site{class: described{state: refusal.ClassReady}, dedication: preflight.Auto}
	clock := testclock.NewFakePassiveClock(now)
	checker, kube := at.checker(t, clock)
	p := purchase()
	p.ToleratesDedication = true // which needs the same read
	check := func(after time.Duration, isMissing bool, lists int) {
		t.Helper()
		clock.SetTime(now.Add(after))
		if err := checker.Check(t.Context(), p); (err != nil) != isMissing || at.lists != lists {
			t.Errorf("after %s: %v, and %d looks; want it to be missing: %t, and %d", after, err, at.lists, isMissing, lists)
		}
	}
	check(0, true, 1)
	check(50*time.Second, true, 1)
	if err := kube.Create(t.Context(), plugin(corev1.Toleration{Operator: corev1.TolerationOpExists})); err != nil {
		t.Fatal(err)
	}
	check(time.Minute, false, 2)
	check(10*time.Minute, false, 2)
	check(12*time.Minute, false, 3)
}

// TestIsDedicated covers which machines get the taint of their Workspace.
func TestIsDedicated(t *testing.T) {
	gpus := corev1.Toleration{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	tests := []struct {
		reason string
		policy preflight.Dedication
		change func(*site)
		want   bool
		// refused is a part of the message why nothing is bought; empty if the purchase is allowed.
		refused string
	}{
		{"the device plugin tolerates everything", preflight.Auto, func(*site) {}, true, ""},
		{"it tolerates sku=gpu only", preflight.Auto, func(at *site) { at.plugins = []client.Object{plugin(gpus)} }, false, ""},
		{"nodes bring their own", preflight.Auto, func(at *site) { at.plugins = nil }, true, ""},
		{"nobody may look for plugins", preflight.Auto, func(at *site) { at.forbidden = true }, false, ""},
		{"a GPU operator that has made no plugin yet", preflight.Auto, func(at *site) { at.plugins, at.operator = nil, true }, false, ""},
		{"a GPU operator whose plugin tolerates everything", preflight.Auto, func(at *site) { at.operator = true }, true, ""},
		{"a GPU operator, for a machine without GPUs", preflight.Auto, func(at *site) {
			at.plugins, at.operator = nil, true
			at.change = func(p *preflight.Purchase) { p.GPUResource = "" }
		}, true, ""},
		{"it is wanted", preflight.Enabled, func(*site) {}, true, ""},
		{
			"it is wanted and the plugin does not tolerate it", preflight.Enabled, func(at *site) { at.plugins = []client.Object{plugin(gpus)} }, false,
			"nothing is bought yet: the taint modelberth.dev/workspace-uid=UID:NoSchedule keeps DaemonSet gpus/nvidia-device-plugin off",
		},
		{"it is wanted and nobody may look", preflight.Enabled, func(at *site) { at.forbidden = true }, true, ""},
		{"it is not wanted", preflight.Disabled, func(*site) {}, false, ""},
		{"the pods do not tolerate it", preflight.Auto, func(at *site) {
			at.change = func(p *preflight.Purchase) { p.ToleratesDedication = false }
		}, false, ""},
		{"the pods do not tolerate it, and it is wanted", preflight.Enabled, func(at *site) {
			at.plugins = []client.Object{plugin(gpus)}
			at.change = func(p *preflight.Purchase) { p.ToleratesDedication = false }
		}, false, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			at := &site{class: described{state: refusal.ClassReady}, plugins: []client.Object{plugin(everything)}, change: func(*preflight.Purchase) {}}
			test.change(at)
			at.dedication, at.unchecked = test.policy, true
			checker, _ := at.checker(t, testclock.NewFakePassiveClock(now))
			p := purchase()
			p.ToleratesDedication = true
			at.change(&p)
			got, err := checker.IsDedicated(t.Context(), p)
			if got != test.want || (err != nil) != (test.refused != "") {
				t.Errorf("got %t, %v; want %t", got, err, test.want)
			}
			stalled, isStalled := errors.AsType[*progress.StalledError](err)
			if test.refused != "" && (!isStalled || stalled.Reason != v1beta1.ReasonTaintNotTolerated ||
				stalled.RetryAfter != time.Minute || !strings.Contains(stalled.Message, test.refused)) {
				t.Errorf("refused by %v, want %q", err, test.refused)
			}
			if prepared := checker.Check(t.Context(), p); (prepared != nil) != (test.refused != "") {
				t.Errorf("before anything is bought: %v", prepared)
			}
		})
	}
}

// TestTenantsDaemonSetDecidesNothing: a DaemonSet in a tenant's namespace does not remove the taint from machines,
// does not stop purchases, and does not count as a device plugin.
func TestTenantsDaemonSetDecidesNothing(t *testing.T) {
	gpus := corev1.Toleration{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	inTeam := func(name string, toleration corev1.Toleration) client.Object {
		out := plugin(toleration)
		out.Namespace, out.Name = "team-a", name
		return out
	}
	tests := []struct {
		reason    string
		policy    preflight.Dedication
		plugins   []client.Object
		isTainted bool
		isBought  bool
	}{
		{"Auto keeps the taint", preflight.Auto, []client.Object{plugin(everything), inTeam("idle", gpus)}, true, true},
		{"Enabled buys", preflight.Enabled, []client.Object{plugin(everything), inTeam("idle", gpus)}, true, true},
		{"a device plugin of a tenant is none", preflight.Auto, []client.Object{inTeam("nvidia-device-plugin", everything)}, true, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			at := &site{class: described{state: refusal.ClassReady}, plugins: test.plugins, dedication: test.policy}
			checker, _ := at.checker(t, testclock.NewFakePassiveClock(now))
			p := purchase()
			p.ToleratesDedication = true
			if got, err := checker.IsDedicated(t.Context(), p); got != test.isTainted || err != nil {
				t.Errorf("tainted %t, %v; want %t", got, err, test.isTainted)
			}
			err := checker.Check(t.Context(), p)
			if (err == nil) != test.isBought || err != nil && strings.Contains(err.Error(), "team-a") {
				t.Errorf("%v; want it bought: %t, and no name of a stranger's", err, test.isBought)
			}
		})
	}
}

// TestMissingTaintIsLoggedOnce: the reason is logged once, and again after it has changed.
func TestMissingTaintIsLoggedOnce(t *testing.T) {
	gpus := corev1.Toleration{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists}
	at := &site{class: described{state: refusal.ClassReady}, dedication: preflight.Auto, unchecked: true, plugins: []client.Object{plugin(gpus)}}
	clock := testclock.NewFakePassiveClock(now)
	checker, kube := at.checker(t, clock)
	p, logged := purchase(), 0
	p.ToleratesDedication = true
	ctx := log.IntoContext(t.Context(), funcr.New(func(string, string) { logged++ }, funcr.Options{}))
	check := func(after time.Duration, want int) {
		t.Helper()
		clock.SetTime(now.Add(after))
		if got, err := checker.IsDedicated(ctx, p); got || err != nil || logged != want {
			t.Errorf("after %s: %t, %v and %d lines, want %d", after, got, err, logged, want)
		}
	}
	check(0, 1)
	check(time.Minute, 1)
	other := plugin(gpus)
	other.Name = "nvidia-dcgm"
	if err := kube.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	check(2*time.Minute, 2)
}

// hanging never returns from a read of a node class.
type hanging struct{}

func (hanging) Class(ctx context.Context, _ v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	<-ctx.Done()
	return "", "", ctx.Err()
}

// TestHangingReadHoldsOneWorker has 32 workers check a purchase while one read never ends.
func TestHangingReadHoldsOneWorker(t *testing.T) {
	at := &site{class: hanging{}, unchecked: true}
	checker, _ := at.checker(t, testclock.NewFakePassiveClock(now))
	synctest.Test(t, func(t *testing.T) {
		var held, busy atomic.Int32
		for range 32 {
			held.Add(1)
			go func() {
				defer held.Add(-1)
				err := checker.Check(context.Background(), purchase())
				if _, isBusy := errors.AsType[*lookup.BusyError](err); isBusy {
					busy.Add(1)
				}
			}()
		}
		time.Sleep(time.Second)
		if held.Load() != 1 || busy.Load() != 31 {
			t.Errorf("%d workers are held and %d come back soon, want 1 and 31", held.Load(), busy.Load())
		}
		time.Sleep(time.Minute)
		if held.Load() != 0 {
			t.Errorf("%d workers are held for good", held.Load())
		}
	})
}
