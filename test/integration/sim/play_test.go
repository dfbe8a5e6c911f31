// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	cloudscript "github.com/modelberth/modelberth/test/script"
)

// askFor is a claim for two GPUs in one zone.
func askFor() *karpv1.NodeClaim {
	in := func(key, value string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "chat", UID: "uid"}}
	claim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		in(corev1.LabelInstanceTypeStable, "big"), in(corev1.LabelTopologyZone, "eastus-1"), in(karpv1.CapacityTypeLabelKey, "spot"),
	}
	claim.Spec.Resources.Requests = corev1.ResourceList{resourceGPU: resource.MustParse("2")}
	return claim
}

// visible is the visible state of the claim, its node and their events.
func visible(t *testing.T, kube client.Client) string {
	t.Helper()
	var out []string
	claim := &karpv1.NodeClaim{}
	err := kube.Get(t.Context(), types.NamespacedName{Name: "chat"}, claim)
	switch {
	case apierrors.IsNotFound(err):
		out = append(out, "no claim")
	case err != nil:
		t.Fatal(err)
	default:
		out = append(out, seenOf(claim))
	}
	node := &corev1.Node{}
	err = kube.Get(t.Context(), types.NamespacedName{Name: "node-chat"}, node)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err == nil {
		gpus := node.Status.Allocatable[resourceGPU]
		said := fmt.Sprintf("node with %s GPUs", gpus.String())
		for _, c := range node.Status.Conditions {
			said += fmt.Sprintf(" %s=%s", c.Type, c.Status)
		}
		out = append(out, said)
	}
	events := &corev1.EventList{}
	if err := kube.List(t.Context(), events, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		out = append(out, e.Reason)
	}
	return strings.Join(out, ", ")
}

func seenOf(claim *karpv1.NodeClaim) string {
	out := "claim"
	for _, kind := range []string{karpv1.ConditionTypeInitialized, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeLaunched} {
		c := claim.StatusConditions().Get(kind)
		if c.IsTrue() {
			out = strings.ToLower(kind) + " claim"
			break
		}
		if c.Reason != "AwaitingReconciliation" {
			out = "claim not " + strings.ToLower(kind) + " by " + c.Reason
		}
	}
	if !claim.DeletionTimestamp.IsZero() {
		out += " ending"
	}
	return out
}

// tell runs a claim's story for two minutes and returns each visible change with its time. Passes come as in a
// controller: after a change of the claim, and when an earlier pass requested one.
func tell(t *testing.T, k *Karpenter) []string {
	t.Helper()
	var seen []string
	begun, last, version := time.Now(), "", ""
	for time.Since(begun) < 2*time.Minute {
		result, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "chat"}})
		if err != nil {
			t.Fatal(err)
		}
		if now := visible(t, k.client); now != last {
			seen, last = append(seen, fmt.Sprintf("%.0fs %s", time.Since(begun).Seconds(), now)), now
		}
		claim := &karpv1.NodeClaim{}
		err = k.client.Get(t.Context(), types.NamespacedName{Name: "chat"}, claim)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		switch {
		case claim.ResourceVersion != version:
			version = claim.ResourceVersion
		case result.RequeueAfter > 0:
			<-time.After(result.RequeueAfter)
		default:
			<-time.After(10 * time.Second) // somebody else's change
		}
	}
	return seen
}

func rules(cloud cloudscript.Cloud, rules ...cloudscript.Rule) cloudscript.Script {
	return cloudscript.Script{Cloud: cloud, Rules: rules}
}

func TestPlay(t *testing.T) {
	d := func(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }
	launching := []string{"0s claim", "0s launched claim", "0s registered claim, node with 0 GPUs"}
	const works = "initialized claim, node with 2 GPUs Ready=True"
	working := append(slices.Clone(launching), "0s "+works)
	for _, test := range []struct {
		reason string
		script cloudscript.Script
		want   []string
	}{
		{"a machine that works", rules(""), working},
		{
			"no capacity, on AWS", rules(cloudscript.AWS, cloudscript.Rule{Outcome: cloudscript.NoCapacity}),
			[]string{"0s claim", "0s claim ending, InsufficientCapacityError", "0s no claim, InsufficientCapacityError"},
		},
		{
			"no capacity, on Azure", rules(cloudscript.Azure, cloudscript.Rule{Outcome: cloudscript.NoCapacity}),
			[]string{
				"0s claim", "0s claim not launched by ZonalAllocationFailure",
				"0s claim not launched by ZonalAllocationFailure ending, InsufficientCapacityError", "0s no claim, InsufficientCapacityError",
			},
		},
		{
			"quota, by gpu-provisioner", rules(cloudscript.GPUProvisioner, cloudscript.Rule{Outcome: cloudscript.Quota}),
			[]string{"0s claim", "0s claim not launched by LaunchFailed"},
		},
		{
			"a burst of errors, each after a while", rules("", cloudscript.Rule{Times: 3, Outcome: cloudscript.APIError, Delay: d(5)}),
			[]string{"0s claim", "5s claim not launched by LaunchFailed", "15s launched claim", "15s registered claim, node with 0 GPUs", "15s " + works},
		},
		{"a sale that takes its time", rules("", cloudscript.Rule{Outcome: cloudscript.SlowCreate, Delay: d(60)}), []string{
			"0s claim", "60s launched claim", "60s registered claim, node with 0 GPUs", "60s " + works,
		}},
		{"no answer", rules("", cloudscript.Rule{Outcome: cloudscript.Hang}), []string{"0s claim"}},
		{"a slow machine", rules("", cloudscript.Rule{Outcome: cloudscript.Slow, Delay: d(60)}), []string{
			"0s claim", "0s launched claim", "60s registered claim, node with 0 GPUs", "60s " + works,
		}},
		{"a machine that never registers", rules("", cloudscript.Rule{Outcome: cloudscript.NeverRegisters}), launching[:2]},
		{"no GPUs", rules("", cloudscript.Rule{Outcome: cloudscript.NoGPUs}), append(slices.Clone(launching), "0s registered claim, node with 0 GPUs Ready=True")},
		{"too few GPUs", rules("", cloudscript.Rule{Outcome: cloudscript.NoGPUs, GPUs: 1}), append(slices.Clone(launching),
			"0s initialized claim, node with 1 GPUs Ready=True")},
		{"death", rules("", cloudscript.Rule{Outcome: cloudscript.Dies, After: d(30)}), append(slices.Clone(working),
			"30s initialized claim, node with 2 GPUs Ready=Unknown", "30s initialized claim ending, node with 2 GPUs Ready=Unknown", "30s no claim")},
		{"death with the node", rules("", cloudscript.Rule{Outcome: cloudscript.Dies, After: d(30), RemoveNode: true}), append(slices.Clone(working),
			"30s initialized claim ending, node with 2 GPUs Ready=True", "30s no claim")},
		{"eviction, on AWS", rules(cloudscript.AWS, cloudscript.Rule{Outcome: cloudscript.Evicted, After: d(30), Notice: d(60)}), append(slices.Clone(working),
			"30s initialized claim ending, node with 2 GPUs Ready=True, SpotInterrupted", "30s no claim, SpotInterrupted")},
		{"eviction, on Azure", rules(cloudscript.Azure, cloudscript.Rule{Outcome: cloudscript.Evicted, After: d(30), Notice: d(60), RemoveNode: true}), append(slices.Clone(working),
			"30s "+works+" PreemptionScheduled=True", "90s initialized claim ending, node with 2 GPUs Ready=True PreemptionScheduled=True", "90s no claim")},
		{"a silent kubelet", rules("", cloudscript.Rule{Outcome: cloudscript.NotReady, After: d(30)}), append(slices.Clone(working),
			"30s initialized claim, node with 2 GPUs Ready=Unknown")},
		{"broken GPUs", rules("", cloudscript.Rule{Outcome: cloudscript.GPUFault, After: d(30)}), append(slices.Clone(working),
			"30s "+works+" AcceleratedHardwareReady=False")},
		{"GPUs that are lost later", rules("", cloudscript.Rule{Outcome: cloudscript.GPUsLost, After: d(30), GPUs: 1}), append(slices.Clone(working),
			"30s initialized claim, node with 1 GPUs Ready=True")},
		{"another machine type's fault", rules("", cloudscript.Rule{SKU: "small", Outcome: cloudscript.NoCapacity}), working},
	} {
		t.Run(test.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &Karpenter{client: newServer(t, askFor()), script: map[target]Behaviour{}, seen: map[types.UID]owner{}}
				k.Play("", test.script)
				if diff := cmp.Diff(test.want, tell(t, k)); diff != "" {
					t.Errorf("story (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestPlayDeletion deletes a claim 10 seconds into its story.
func TestPlayDeletion(t *testing.T) {
	d := metav1.Duration{Duration: 30 * time.Second}
	for _, test := range []struct {
		reason string
		rule   cloudscript.Rule
		want   time.Duration
	}{
		{"a machine goes at once", cloudscript.Rule{Outcome: cloudscript.Accept}, 10 * time.Second},
		{"one that never registered too", cloudscript.Rule{Outcome: cloudscript.NeverRegisters}, 10 * time.Second},
		{"a refused claim too", cloudscript.Rule{Outcome: cloudscript.Quota}, 10 * time.Second},
		{"a request that is under way is waited for", cloudscript.Rule{Outcome: cloudscript.SlowCreate, Delay: d}, 30 * time.Second},
		{"even for ever", cloudscript.Rule{Outcome: cloudscript.Hang}, 0},
		{"a deletion that takes its time", cloudscript.Rule{Outcome: cloudscript.Stuck, Delay: d}, 40 * time.Second},
		{"a deletion that never ends", cloudscript.Rule{Outcome: cloudscript.Stuck}, 0},
	} {
		t.Run(test.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				claim := askFor()
				k := &Karpenter{client: newServer(t, claim), script: map[target]Behaviour{}, seen: map[types.UID]owner{}}
				k.Play("", rules("", test.rule))
				deleter := time.AfterFunc(10*time.Second-time.Millisecond, func() { _ = k.client.Delete(t.Context(), claim) })
				defer deleter.Stop()
				var gone time.Duration
				for _, moment := range tell(t, k) {
					at, what, _ := strings.Cut(moment, " ")
					if strings.HasPrefix(what, "no claim") {
						parsed, err := time.ParseDuration(at)
						if err != nil {
							t.Fatal(err)
						}
						gone = parsed
					}
				}
				if gone != test.want {
					t.Errorf("the claim is gone at %s, want %s (0s is never)", gone, test.want)
				}
			})
		})
	}
}

func TestPlayIsForOneNamespace(t *testing.T) {
	mine, theirs := rules("", cloudscript.Rule{Outcome: cloudscript.NeverRegisters}), rules("", cloudscript.Rule{Outcome: cloudscript.Quota})
	claimIn := func(namespace string) *karpv1.NodeClaim {
		claim := askFor()
		claim.Labels = map[string]string{v1beta1.LabelMachineWorkspaceNamespace: namespace}
		return claim
	}
	for _, test := range []struct {
		reason string
		play   map[string]cloudscript.Script
		want   string
	}{
		{"its own script", map[string]cloudscript.Script{"mine": mine, "": theirs}, "launched claim"},
		{"the script for all", map[string]cloudscript.Script{"theirs": theirs, "": mine}, "launched claim"},
		{"no script for it: what Script says, which is nothing", map[string]cloudscript.Script{"theirs": theirs}, "initialized claim, node with 2 GPUs Ready=True"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &Karpenter{client: newServer(t, claimIn("mine")), script: map[target]Behaviour{}, seen: map[types.UID]owner{}}
				for namespace, s := range test.play {
					k.Play(namespace, s)
				}
				seen := tell(t, k)
				if _, last, _ := strings.Cut(seen[len(seen)-1], " "); last != test.want {
					t.Errorf("in the end there is %q, want %q", last, test.want)
				}
			})
		})
	}
}
