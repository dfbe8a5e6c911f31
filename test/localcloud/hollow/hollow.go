// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hollow is the kubelet of machines as mere Nodes. It decides when such a node is Ready and the course of its
// pods: they run and are Ready with all their containers as soon as they are bound, and are gone when deleted. It
// reports the status of each Ready node as often as a kubelet does, without its Lease. It must not know the buyers of
// machines or the programs in the pods.
package hollow

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NodeAnnotation marks a Node without a machine.
const NodeAnnotation = "local.modelberth.dev/hollow"

// podNetwork is the range of the unreachable pod addresses on such nodes.
var podNetwork = netip.MustParsePrefix("10.128.0.0/16")

// workers is how many nodes, and how many pods, are written at once.
const workers = 4

// heartbeat is a kubelet's pause between two reports of an unchanged node.
const heartbeat = 5 * time.Minute

// unknownNodeDelay leaves time for a pod's node to appear in the cache.
const unknownNodeDelay = 200 * time.Millisecond

// Run keeps nodes and pods until the context ends. It answers on
// healthAddress/readyz as soon as it runs.
func Run(ctx context.Context, kubeconfig, healthAddress string, logger *slog.Logger) error {
	log.SetLogger(logr.FromSlogHandler(logger.Handler()))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the access to the API server: %w", err)
	}
	config.QPS = -1 // many kubelets in one, and none of them asks much
	m, err := manager.New(config, manager.Options{
		Scheme:                 scheme.Scheme,
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: healthAddress,
	})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	if err := m.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	k := &kubelets{kube: m.GetClient(), now: time.Now}
	if err := look(m, &corev1.Node{}, isComing, k.register); err != nil {
		return fmt.Errorf("setting up nodes: %w", err)
	}
	if err := look(m, &corev1.Pod{}, isWaiting, k.serve); err != nil {
		return fmt.Errorf("setting up pods: %w", err)
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("keeping nodes and pods: %w", err)
	}
	return nil
}

// look calls act for each object of a kind that waits. It ignores conflicts and missing objects: the watch reports
// them again.
func look[T interface {
	client.Object
	comparable
}](m manager.Manager, kind T, waits func(client.Object) bool, act func(context.Context, T) (reconcile.Result, error)) error {
	settled := func(ctx context.Context, object T) (reconcile.Result, error) {
		result, err := act(ctx, object)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			err = nil
		}
		return result, err
	}
	return builder.ControllerManagedBy(m).WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		For(kind, builder.WithPredicates(predicate.NewPredicateFuncs(waits))).
		Complete(reconcile.AsReconciler(m.GetClient(), reconcile.ObjectReconciler[T](reconcile.TypedFunc[T](settled))))
}

// isComing reports whether a node is hollow and not yet Ready.
func isComing(object client.Object) bool {
	node, ok := object.(*corev1.Node)
	if !ok {
		return false
	}
	if _, ok := node.Annotations[NodeAnnotation]; !ok {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return true
}

// isWaiting reports whether a pod waits for its kubelet to start or release it.
func isWaiting(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && pod.Spec.NodeName != "" && (pod.DeletionTimestamp != nil || pod.Status.PodIP == "")
}

// kubelets act for all nodes without a machine.
type kubelets struct {
	kube client.Client
	now  func() time.Time
	pods atomic.Uint32
}

// register makes a node Ready, with its capacity from creation, and reports it again from time to time.
func (k *kubelets) register(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	now := metav1.NewTime(k.now())
	if !isComing(node) {
		return k.report(ctx, node, now)
	}
	ready := node.DeepCopy()
	ready.Status.Conditions = slices.DeleteFunc(ready.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	ready.Status.Conditions = append(ready.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "a node without a machine",
		LastHeartbeatTime: now, LastTransitionTime: now,
	})
	return reconcile.Result{RequeueAfter: firstHeartbeat(node.Name)}, k.kube.Status().Patch(ctx, ready, over(node))
}

// firstHeartbeat spreads the nodes' reports over the pause, even if the nodes join at the same moment.
func firstHeartbeat(node string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(node))
	return time.Second + time.Duration(hash.Sum32())*heartbeat/math.MaxUint32
}

// report renews the heartbeats of a Ready node.
func (k *kubelets) report(ctx context.Context, node *corev1.Node, now metav1.Time) (reconcile.Result, error) {
	if _, ok := node.Annotations[NodeAnnotation]; !ok {
		return reconcile.Result{}, nil
	}
	beating := node.DeepCopy()
	for i := range beating.Status.Conditions {
		beating.Status.Conditions[i].LastHeartbeatTime = now
	}
	return reconcile.Result{RequeueAfter: heartbeat}, k.kube.Status().Patch(ctx, beating, over(node))
}

// serve makes a pod run, or removes it, if its node is hollow.
func (k *kubelets) serve(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	if !isWaiting(pod) {
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := k.kube.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: unknownNodeDelay}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading node %s: %w", pod.Spec.NodeName, err)
	}
	if _, ok := node.Annotations[NodeAnnotation]; !ok {
		return reconcile.Result{}, nil
	}
	if pod.DeletionTimestamp != nil {
		return reconcile.Result{}, k.kube.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	}
	running := pod.DeepCopy()
	run(&running.Status, pod.Spec, address(k.pods.Add(1)), metav1.NewTime(k.now()))
	return reconcile.Result{}, k.kube.Status().Patch(ctx, running, over(pod))
}

// over returns a patch for exactly the version read: a list in a status grows with each patch of an old one.
func over(read client.Object) client.Patch {
	return client.StrategicMergeFrom(read, client.MergeFromWithOptimisticLock{})
}

// address returns the address of the n-th pod. Addresses repeat after 65,533 pods and after a restart of the program.
func address(n uint32) string {
	const reserved = 2 // the network's own, and the first host's
	base := binary.BigEndian.Uint32(podNetwork.Masked().Addr().AsSlice())
	size := uint32(1) << (32 - podNetwork.Bits())
	var at [4]byte
	binary.BigEndian.PutUint32(at[:], base+reserved+(n-1)%(size-reserved-1))
	return netip.AddrFrom4(at).String()
}

// run writes down all containers of a pod as started and ready, and its init containers as done.
func run(status *corev1.PodStatus, spec corev1.PodSpec, ip string, now metav1.Time) {
	status.Phase, status.StartTime = corev1.PodRunning, &now
	status.PodIP, status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
	for _, c := range spec.InitContainers {
		isSidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		state := done
		if isSidecar {
			state = running
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses,
			corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true, Started: new(isSidecar), State: state})
	}
	for _, c := range spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses,
			corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true, Started: new(true), State: running})
	}
}
