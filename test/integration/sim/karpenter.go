// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sim holds the integration tests' stand-ins around a real API server: a scripted Karpenter, and a
// StatefulSet controller with kubelets quick to start pods.
//
// It plays the cluster's part, and must not know how the controller works.
package sim

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/modelberth/modelberth/api/v1beta1"
	cloudscript "github.com/modelberth/modelberth/test/script"
)

const terminationFinalizer = "karpenter.sh/termination"

// Behaviour is Karpenter's way with the claims for one instance type.
type Behaviour string

// The behaviours.
const (
	// Works launches, registers and initialises.
	Works Behaviour = ""
	// NoCapacity deletes the claim without a word, as Karpenter does.
	NoCapacity Behaviour = "NoCapacity"
	// Hangs never launches.
	Hangs Behaviour = "Hangs"
	// NoQuota reports a family quota of zero and goes on trying, as Azure's Karpenter does.
	NoQuota Behaviour = "NoQuota"
	// NoQuotaEvent says so in an event only and deletes the claim, as AWS's does.
	NoQuotaEvent Behaviour = "NoQuotaEvent"
	// NoRights reports the provisioner's lack of rights to create machines.
	NoRights Behaviour = "NoRights"
	// NoGPUs registers a node without visible GPUs.
	NoGPUs Behaviour = "NoGPUs"
	// Hidden makes no claim of a pool, and reports the lack of offers in an event.
	Hidden Behaviour = "Hidden"
	// Ignored makes none, without a word.
	Ignored Behaviour = "Ignored"
)

// Karpenter is a stand-in for Karpenter: it answers NodeClaims by its script.
type Karpenter struct {
	client client.Client

	mu     sync.Mutex
	script map[target]Behaviour
	// seen are all claims so far, by UID.
	seen map[types.UID]owner
	// players by namespace, and stories, belong to Play.
	players map[string]*cloudscript.Player
	stories map[types.UID]*story
}

// target is the subject of a script's line: an instance type, and one ordinal or any.
type target struct{ instanceType, ordinal string }

// owner is a claim's owner: a Workspace's UID, and the ordinal among its machines.
type owner struct{ workspace, ordinal string }

// anyOrdinal stands for every machine of a Workspace.
const anyOrdinal = ""

// SetupKarpenter registers the stand-in with a manager.
func SetupKarpenter(mgr manager.Manager) (*Karpenter, error) {
	k := &Karpenter{client: mgr.GetClient(), script: map[target]Behaviour{}, seen: map[types.UID]owner{}}
	skip := true
	err := ctrl.NewControllerManagedBy(mgr).Named("sim-karpenter").
		WithOptions(controller.Options{SkipNameValidation: &skip, MaxConcurrentReconciles: 8}).
		For(&karpv1.NodeClaim{}).Complete(k)
	return k, err
}

// Script sets the behaviour for an instance type's claims from now on.
func (k *Karpenter) Script(instanceType string, behaviour Behaviour) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.script[target{instanceType, anyOrdinal}] = behaviour
}

// ScriptOrdinal sets the behaviour from now on for an instance type's claims with an ordinal in their Workspace; it
// goes before Script.
func (k *Karpenter) ScriptOrdinal(instanceType, ordinal string, behaviour Behaviour) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.script[target{instanceType, ordinal}] = behaviour
}

// WorkAgain ends all scripts of instance types: their claims work from now on.
func (k *Karpenter) WorkAgain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.script)
}

// ClaimsEver returns how many claims a Workspace has ever had.
func (k *Karpenter) ClaimsEver(workspace types.UID) int {
	return k.count(func(o owner) bool { return o.workspace == string(workspace) })
}

// ClaimsEverOf returns how many claims a Workspace has ever had for the machine of one ordinal.
func (k *Karpenter) ClaimsEverOf(workspace types.UID, ordinal string) int {
	return k.count(func(o owner) bool { return o == owner{string(workspace), ordinal} })
}

func (k *Karpenter) count(isMeant func(owner) bool) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	count := 0
	for _, owner := range k.seen {
		if isMeant(owner) {
			count++
		}
	}
	return count
}

// Reconcile brings one claim a stage further.
func (k *Karpenter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	claim := &karpv1.NodeClaim{}
	if err := k.client.Get(ctx, request.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	behaviour := k.note(claim)
	if isAgentPool(claim) {
		return k.provision(ctx, claim, behaviour)
	}
	if player, st := k.playing(claim); player != nil {
		return k.play(ctx, player, st, claim)
	}
	if !claim.DeletionTimestamp.IsZero() {
		return againAfterRace(k.terminate(ctx, claim))
	}
	if controllerutil.AddFinalizer(claim, terminationFinalizer) {
		return againAfterRace(k.client.Update(ctx, claim))
	}
	switch behaviour {
	case NoCapacity:
		return againAfterRace(k.client.Delete(ctx, claim))
	case NoQuotaEvent:
		if err := k.publish(ctx, claim); err != nil {
			return againAfterRace(err)
		}
		return againAfterRace(k.client.Delete(ctx, claim))
	case NoQuota, NoRights, Hangs:
		return againAfterRace(k.holdOut(ctx, claim, behaviour))
	default:
		return againAfterRace(k.advance(ctx, claim, behaviour))
	}
}

// behaviour towards any request for an instance type.
func (k *Karpenter) behaviour(instanceType string) Behaviour {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.script[target{instanceType, anyOrdinal}]
}

func (k *Karpenter) note(claim *karpv1.NodeClaim) Behaviour {
	k.mu.Lock()
	defer k.mu.Unlock()
	ordinal := claim.Labels[v1beta1.LabelMachineOrdinal]
	k.seen[claim.UID] = owner{claim.Labels[v1beta1.LabelWorkspaceUID], ordinal}
	if behaviour, ok := k.script[target{instanceType(claim), ordinal}]; ok {
		return behaviour
	}
	return k.script[target{instanceType(claim), anyOrdinal}]
}

func (k *Karpenter) terminate(ctx context.Context, claim *karpv1.NodeClaim) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(claim)}}
	if err := client.IgnoreNotFound(k.client.Delete(ctx, node)); err != nil {
		return err
	}
	if controllerutil.RemoveFinalizer(claim, terminationFinalizer) {
		return k.client.Update(ctx, claim)
	}
	return nil
}

// holdOut keeps the claim, with words of a cloud.
func (k *Karpenter) holdOut(ctx context.Context, claim *karpv1.NodeClaim, behaviour Behaviour) error {
	reason, message := "LaunchFailed", "the cloud does not answer"
	switch behaviour {
	case NoQuota:
		reason, message = "SubscriptionQuotaReached", fmt.Sprintf(quotaWords, instanceType(claim))
	case NoRights:
		message = "creating machine: RESPONSE 403: 403 Forbidden ERROR CODE: AuthorizationFailed"
	}
	if claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).Reason == reason {
		return nil
	}
	claim.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeLaunched, reason, message)
	return k.client.Status().Update(ctx, claim)
}

// quotaWords are Azure's, as its Karpenter passes them on.
const quotaWords = "subscription level on-demand vCPU quota for %s has been reached (may try provision an alternative instance type)"

// publish says why a claim is deleted, as Karpenter's recorder does.
func (k *Karpenter) publish(ctx context.Context, claim *karpv1.NodeClaim) error {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: claim.Name + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: claim.Name, UID: claim.UID,
		},
		Reason: "InsufficientCapacityError", Type: corev1.EventTypeWarning,
		Message:        fmt.Sprintf("NodeClaim %s event: insufficient capacity, %s", claim.Name, fmt.Sprintf(quotaWords, instanceType(claim))),
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}
	return k.client.Create(ctx, event)
}

// settle labels a launched machine with its zone before its status reports the launch, as Karpenter does: the
// required one, or one of two by its ordinal.
func (k *Karpenter) settle(ctx context.Context, claim *karpv1.NodeClaim) error {
	if claim.Labels[corev1.LabelTopologyZone] != "" {
		return nil
	}
	ordinal, _ := strconv.Atoi(claim.Labels[v1beta1.LabelMachineOrdinal])
	zone := fmt.Sprintf("sim-%d", ordinal%2+1)
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == corev1.LabelTopologyZone {
			zone = requirement.Values[0]
		}
	}
	labelled := claim.DeepCopy()
	metav1.SetMetaDataLabel(&labelled.ObjectMeta, corev1.LabelTopologyZone, zone)
	if err := k.client.Patch(ctx, labelled, client.MergeFrom(claim)); err != nil {
		return err
	}
	claim.ObjectMeta = labelled.ObjectMeta
	return nil
}

// advance takes one stage per pass, so the controller under test sees each of them.
func (k *Karpenter) advance(ctx context.Context, claim *karpv1.NodeClaim, behaviour Behaviour) error {
	conditions := claim.StatusConditions()
	switch {
	case !conditions.Get(karpv1.ConditionTypeLaunched).IsTrue():
		if err := k.settle(ctx, claim); err != nil {
			return err
		}
		claim.Status.ProviderID = "sim://" + claim.Name
		conditions.SetTrue(karpv1.ConditionTypeLaunched)
	case !conditions.Get(karpv1.ConditionTypeRegistered).IsTrue():
		if err := k.register(ctx, claim); err != nil {
			return err
		}
		claim.Status.NodeName = nodeName(claim)
		conditions.SetTrue(karpv1.ConditionTypeRegistered)
	case conditions.Get(karpv1.ConditionTypeInitialized).IsTrue():
		return nil
	case behaviour == NoGPUs:
		if conditions.Get(karpv1.ConditionTypeInitialized).Reason == "ResourceNotRegistered" {
			return nil
		}
		conditions.SetUnknownWithReason(karpv1.ConditionTypeInitialized, "ResourceNotRegistered",
			`Resource "nvidia.com/gpu" was requested but not registered`)
	default:
		if err := k.showGPUs(ctx, claim); err != nil {
			return err
		}
		conditions.SetTrue(karpv1.ConditionTypeInitialized)
	}
	return k.client.Status().Update(ctx, claim)
}

func (k *Karpenter) register(ctx context.Context, claim *karpv1.NodeClaim) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(claim), Labels: map[string]string{}},
		Spec:       corev1.NodeSpec{ProviderID: claim.Status.ProviderID, Taints: claim.Spec.Taints},
	}
	maps.Copy(node.Labels, claim.Labels)
	node.Labels[corev1.LabelInstanceTypeStable] = instanceType(claim)
	if err := k.client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func (k *Karpenter) showGPUs(ctx context.Context, claim *karpv1.NodeClaim) error {
	node := &corev1.Node{}
	if err := k.client.Get(ctx, types.NamespacedName{Name: nodeName(claim)}, node); err != nil {
		return err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Capacity = capacityOf(claim)
	node.Status.Allocatable = node.Status.Capacity
	return k.client.Status().Update(ctx, node)
}

// capacityOf returns a machine's resources: the claim's requests, or one GPU if a pool made the claim and requests
// nothing.
func capacityOf(claim *karpv1.NodeClaim) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	if claim.Labels[karpv1.NodePoolLabelKey] != "" {
		out[gpu] = resource.MustParse("1")
	}
	maps.Copy(out, claim.Spec.Resources.Requests)
	return out
}

func nodeName(claim *karpv1.NodeClaim) string { return "node-" + claim.Name }

func instanceType(claim *karpv1.NodeClaim) string {
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable && len(requirement.Values) > 0 {
			return requirement.Values[0]
		}
	}
	return ""
}

// raceDelay lets the cache catch up with the write in between.
const raceDelay = 20 * time.Millisecond

// againAfterRace requests another look after a conflicting write, or an object missing from the cache. It must not
// wait for an event: there is none if the late object is not the watched one, as with a claim's node.
func againAfterRace(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: raceDelay}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("simulated cluster: %w", err)
	}
	return ctrl.Result{}, nil
}
