// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Scaling is the fate of a node group after a pod needs one of its nodes.
type Scaling string

// The scalings of a node group.
const (
	// Scales brings a node.
	Scales Scaling = ""
	// Full is at its maximum size.
	Full Scaling = "Full"
	// Fails asks the cloud and gets a refusal with words about the group; the group is left alone from then on.
	Fails Scaling = "Fails"
	// Dawdles asks the cloud and gets no answer.
	Dawdles Scaling = "Dawdles"
	// Blind brings a node without visible GPUs.
	Blind Scaling = "Blind"
)

// NodeGroup is one of the stand-in's groups to scale up.
type NodeGroup struct {
	Name         string
	InstanceType string
	Zone         string
	GPUs         int
	Scaling      Scaling
	// Words of the cloud about a failing group.
	Words string
}

// autoscalerLoop is the stand-in's pause between two looks at waiting pods. Events distinguish whole seconds.
const autoscalerLoop = 1100 * time.Millisecond

// LabelNodeGroup is on the stand-in's nodes.
const LabelNodeGroup = "sim.modelberth.dev/node-group"

// Autoscaler is a stand-in for cluster autoscaler: it answers the pods of some namespaces, in the words and
// with the habits of the real one.
type Autoscaler struct {
	client client.Client

	mu     sync.Mutex
	groups map[string][]NodeGroup
	// asked are the groups scaled up for a pod, by its UID; failed are those left alone.
	asked  map[string]string
	failed map[string]bool
}

// SetupAutoscaler registers the stand-in with a manager.
func SetupAutoscaler(mgr manager.Manager) (*Autoscaler, error) {
	a := &Autoscaler{
		client: mgr.GetClient(), groups: map[string][]NodeGroup{}, asked: map[string]string{}, failed: map[string]bool{},
	}
	skip := true
	err := ctrl.NewControllerManagedBy(mgr).Named("sim-autoscaler").
		WithOptions(controller.Options{SkipNameValidation: &skip}).For(&corev1.Pod{}).Complete(a)
	return a, err
}

// Serve has the stand-in answer the pods of a namespace with these groups, from now on.
func (a *Autoscaler) Serve(namespace string, groups ...NodeGroup) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups[namespace] = groups
}

// Reconcile answers one pod.
func (a *Autoscaler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	groups, isServed := a.groups[request.Namespace]
	pod := &corev1.Pod{}
	if err := a.client.Get(ctx, request.NamespacedName, pod); err != nil || !isServed {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pod.Spec.NodeName != "" || !pod.DeletionTimestamp.IsZero() || len(pod.Status.Conditions) == 0 {
		return ctrl.Result{}, nil
	}
	again := ctrl.Result{RequeueAfter: autoscalerLoop}
	if name := a.asked[string(pod.UID)]; name != "" {
		if err := a.follow(ctx, pod, groups, name); err != nil {
			return ctrl.Result{}, fmt.Errorf("simulated autoscaler: %w", err)
		}
		return again, nil
	}
	reasons := map[string]int{}
	for i := range groups {
		reason := a.reasonAgainst(&groups[i], pod)
		if reason == "" {
			a.asked[string(pod.UID)] = groups[i].Name
			return again, a.tell(ctx, podRef(pod), "TriggeredScaleUp", fmt.Sprintf("pod triggered scale-up: [{%s 0->1 (max: 3)}]", groups[i].Name))
		}
		reasons[reason]++
	}
	var parts []string
	for reason, count := range reasons { // in any order, as the real one
		parts = append(parts, fmt.Sprintf("%d %s", count, reason))
	}
	rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return again, a.tell(ctx, podRef(pod), "NotTriggerScaleUp", "pod didn't trigger scale-up: "+strings.Join(parts, ", "))
}

// reasonAgainst is why a group is not scaled up for a pod; empty if it is.
func (a *Autoscaler) reasonAgainst(group *NodeGroup, pod *corev1.Pod) string {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(group.node("template"))
	switch {
	case group.Scaling == Full:
		return "max node group size reached"
	case a.failed[group.Name]:
		return "in backoff after failed scale-up"
	case err != nil || !fits:
		return "node(s) didn't match Pod's node affinity/selector"
	default:
		return ""
	}
}

// follow brings the requested node, or lets the group fail.
func (a *Autoscaler) follow(ctx context.Context, pod *corev1.Pod, groups []NodeGroup, name string) error {
	for i := range groups {
		group := &groups[i]
		switch {
		case group.Name != name:
			continue
		case group.Scaling == Fails:
			delete(a.asked, string(pod.UID))
			a.failed[name] = true
			status := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: metav1.NamespaceSystem, Name: "cluster-autoscaler-status"}
			return a.tell(ctx, status, "ScaleUpFailed",
				fmt.Sprintf("Failed adding 1 nodes to group %s due to OutOfResource.refused; source errors: %s", name, group.Words))
		case group.Scaling == Scales || group.Scaling == Blind:
			return a.bring(ctx, group, pod)
		}
	}
	return nil
}

// bring makes the node of a pod, once, and another one if the scheduler gave the first to another waiting pod.
func (a *Autoscaler) bring(ctx context.Context, group *NodeGroup, pod *corev1.Pod) error {
	pods := &corev1.PodList{}
	if err := a.client.List(ctx, pods); err != nil {
		return err
	}
	for name := group.Name + "-" + string(pod.UID[:8]); ; name += "-again" {
		err := a.client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
		if apierrors.IsNotFound(err) {
			return MakeNode(ctx, a.client, group.node(name))
		}
		isTaken := slices.ContainsFunc(pods.Items, func(other corev1.Pod) bool { return other.Spec.NodeName == name })
		if err != nil || !isTaken {
			return err
		}
	}
}

// MakeNode makes a node with its status, as a kubelet registers it.
func MakeNode(ctx context.Context, to client.Client, node *corev1.Node) error {
	status := node.Status
	if err := to.Create(ctx, node); err != nil {
		return err
	}
	// Others may write to it meanwhile.
	before := node.DeepCopy()
	node.Status = status
	if err := to.Status().Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return err
	}
	before = node.DeepCopy()
	node.Spec.Taints = nil // the API server adds the taint not-ready, and no controller here removes it
	return to.Patch(ctx, node, client.MergeFrom(before))
}

// node is one of the group.
func (g *NodeGroup) node(name string) *corev1.Node {
	gpus := *resource.NewQuantity(int64(max(g.GPUs, 1)), resource.DecimalSI)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelInstanceTypeStable: g.InstanceType, corev1.LabelTopologyZone: g.Zone, LabelNodeGroup: g.Name,
		}},
		Spec: corev1.NodeSpec{ProviderID: "sim://" + name},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("900Gi"), gpu: gpus,
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
		},
	}
	if g.Scaling == Blind {
		delete(node.Status.Allocatable, gpu)
	}
	return node
}

// Node returns a node of the group, to bring by hand.
func (g NodeGroup) Node(name string) *corev1.Node { return g.node(name) }

func podRef(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// tell publishes an event without a recorder's aggregation.
func (a *Autoscaler) tell(ctx context.Context, about corev1.ObjectReference, reason, message string) error {
	now := metav1.Now()
	return a.client.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, GenerateName: about.Name + "."},
		InvolvedObject: about, Reason: reason, Message: message, Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "cluster-autoscaler"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
}
