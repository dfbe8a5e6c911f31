// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package interruption stands for a cloud's controllers in a cluster when a machine meets its fate: they announce its
// end, report its broken GPUs, and remove the node of a vanished machine. It decides the visible signs and their
// places, as on the script's cloud; the cloud decides the time.
package interruption

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/script"
)

// interval is how often the cloud is asked; it is a question over a socket.
const interval = 500 * time.Millisecond

// Machines lists the cloud's sold machines.
type Machines interface {
	List(context.Context) ([]cloud.Machine, error)
}

// Controller brings about the script's fates in the cluster.
type Controller struct {
	kube     client.Client
	machines Machines
	events   events.Recorder

	// told holds the ids of machines with a visible fate, and nodes the machines, by id, with a node to remove after
	// them.
	told  map[string]bool
	nodes map[string]cloud.Machine
}

// New returns a controller without any fate told.
func New(kube client.Client, machines Machines, recorder events.Recorder) *Controller {
	return &Controller{
		kube: kube, machines: machines, events: recorder,
		told: map[string]bool{}, nodes: map[string]cloud.Machine{},
	}
}

// Register implements operatorpkg's controller.Controller.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("local.interruption").
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(c))
}

// Reconcile looks once at all machines.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	machines, err := c.machines.List(ctx)
	if err != nil {
		return reconciler.Result{}, fmt.Errorf("listing machines: %w", err)
	}
	alive := map[string]bool{}
	var errs []error
	for _, m := range machines {
		alive[m.ID] = true
		if m.Fate == nil {
			continue
		}
		if m.Fate.RemoveNode {
			c.nodes[m.ID] = m
		}
		if m.Due && !c.told[m.ID] {
			told, err := c.tell(ctx, m)
			errs = append(errs, err)
			c.told[m.ID] = told
		}
	}
	for id, m := range c.nodes {
		if alive[id] {
			continue
		}
		if err := c.removeNode(ctx, m); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(c.nodes, id)
	}
	return reconciler.Result{RequeueAfter: interval}, errors.Join(errs...)
}

// tell announces the machine's end on its node. It returns false until the node is registered.
func (c *Controller) tell(ctx context.Context, m cloud.Machine) (bool, error) {
	var condition script.Condition
	switch m.Fate.Outcome {
	case script.GPUFault:
		condition = m.Fate.FaultCondition()
	case script.Evicted:
		announced := m.Fate.EvictionCondition()
		if announced == nil {
			err := c.interrupt(ctx, m)
			return err == nil, err
		}
		condition = *announced
	default:
		return true, nil
	}
	node, err := c.node(ctx, m)
	if node == nil || err != nil {
		return false, err
	}
	original := node.DeepCopy()
	if condition.Apply(node, metav1.Now()) {
		if err := c.kube.Status().Patch(ctx, node, client.StrategicMergeFrom(original)); err != nil {
			return false, fmt.Errorf("setting condition %s of node %s: %w", condition.Type, node.Name, err)
		}
	}
	return true, nil
}

// interrupt deletes the claim before its machine ends, as Karpenter does on AWS after the notice of a spot
// interruption.
func (c *Controller) interrupt(ctx context.Context, m cloud.Machine) error {
	var claims karpv1.NodeClaimList
	if err := c.kube.List(ctx, &claims); err != nil {
		return fmt.Errorf("looking for the claim of machine %s: %w", m.ID, err)
	}
	node, err := c.node(ctx, m)
	if err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.ProviderID != m.ProviderID || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		c.publish(claim, string(claim.UID), "NodeClaim")
		if node != nil {
			c.publish(node, string(node.UID), "Node")
		}
		if err := client.IgnoreNotFound(c.kube.Delete(ctx, claim)); err != nil {
			return fmt.Errorf("deleting claim %s of machine %s: %w", claim.Name, m.ID, err)
		}
	}
	return nil
}

func (c *Controller) publish(object runtime.Object, uid, kind string) {
	for _, e := range [][2]string{
		{"SpotInterrupted", "Spot interruption warning was triggered"},
		{"TerminatingOnInterruption", "Interruption triggered termination for the " + kind},
	} {
		c.events.Publish(events.Event{
			InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: e[0], Message: e[1], DedupeValues: []string{uid},
		})
	}
}

// node returns the machine's node, or nil.
func (c *Controller) node(ctx context.Context, m cloud.Machine) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.kube.Get(ctx, client.ObjectKey{Name: m.Name}, node)
	if apierrors.IsNotFound(err) || err == nil && node.Spec.ProviderID != m.ProviderID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s of machine %s: %w", m.Name, m.ID, err)
	}
	return node, nil
}

func (c *Controller) removeNode(ctx context.Context, m cloud.Machine) error {
	node, err := c.node(ctx, m)
	if node == nil || err != nil {
		return err
	}
	if err := client.IgnoreNotFound(c.kube.Delete(ctx, node)); err != nil {
		return fmt.Errorf("removing node %s of machine %s: %w", m.Name, m.ID, err)
	}
	return nil
}
