// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// AdapterProbe reads which adapters an engine has loaded.
type AdapterProbe interface {
	Adapters(ctx context.Context, at engineprobe.Endpoint) (adapters.State, error)
}

// Intervals of looks at an engine that does not serve all its adapters yet. The second one is for adapters that have
// failed: the agent tries them again after a while.
const (
	lookLoading = 500 * time.Millisecond
	lookFailed  = 15 * time.Second
)

// match returns the stored revision for some inputs, or nil. If only the adapters differ from the accepted revision, and
// the running pods can take them, that revision stays, unless there is a newer one for these inputs.
func (r *Reconciler) match(s *scope.Scope, in render.Inputs) (*revision.Revision, error) {
	matched, err := s.Revisions.Match(s.Workspace, in)
	accepted := s.Accepted()
	if err != nil || accepted == nil || s.Revisions.IsNewer(matched, accepted) || !accepted.ChangesOnlyAdapters(in) {
		return matched, err
	}
	s.WhyReplaced = accepted.AdapterObstacle(in.Inference.Adapters)
	if problem := r.Signatures.Unverifiable(in.Inference); s.WhyReplaced == "" && problem != "" {
		s.WhyReplaced = problem // the new plan is refused for the same reason
	}
	if s.WhyReplaced == "" {
		return accepted, nil
	}
	return matched, nil
}

// adapterLists writes the lists of adapters into pods, and reads which adapters their engines have.
type adapterLists struct {
	Client client.Writer
	Live   client.Reader
	Probe  AdapterProbe
	// probes holds an entry for each running probe of an engine.
	probes chan struct{}
}

// ensure writes the list of adapters into the pods, for their agents, and reads which ones the engine has loaded.
// An adapter leaves the list only after the status lacks it, so that routers have left it before.
func (r *adapterLists) ensure(ctx context.Context, s *scope.Scope) error {
	runs := s.Running()
	if runs == nil || !runs.LiveAdapters || s.IsRolling {
		return nil
	}
	want, isKnown := s.WantedAdapters()
	for _, pod := range s.CurrentPods() {
		if s.StatefulSet == nil || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != s.StatefulSet.Status.UpdateRevision ||
			s.StatefulSet.Status.ObservedGeneration != s.StatefulSet.Generation {
			continue // the StatefulSet replaces it
		}
		if text := pod.Annotations[v1beta1.AnnotationAdapters]; !isKnown && !adapters.IsPending(text) {
			continue
		}
		if err := r.list(ctx, s, pod, want); err != nil {
			return err
		}
	}
	if !isKnown {
		return nil
	}
	return r.observe(ctx, s, want)
}

// list writes the list into a pod. If the engine of the pod cannot take it, the pod is replaced.
func (r *adapterLists) list(ctx context.Context, s *scope.Scope, pod *corev1.Pod, want []adapters.Adapter) error {
	text := pod.Annotations[v1beta1.AnnotationAdapters]
	now := adapters.List{}
	if !adapters.IsPending(text) {
		var err error
		if now, err = adapters.Decode(text); err != nil {
			log.FromContext(ctx).Info("the list of adapters of a pod was changed, writing it again", "pod", pod.Name, "reason", err.Error())
			now = adapters.List{}
		}
	}
	next, err := now.Next(want)
	if err != nil {
		s.IsRolling = true
		return deletePods(ctx, r.Client, pod.Namespace, []group.Leaving{{Name: pod.Name, UID: pod.UID}}, err.Error())
	}
	var inUse []string
	if scope.IsPodReady(pod) { // otherwise no request reaches it
		inUse = s.StoredAdapters()
	}
	next, isDelayed := next.Keep(now, inUse)
	if isDelayed {
		s.LookAgain(lookLoading)
	}
	if next.Encode() == text {
		return nil
	}
	isWritten, err := writeAdapters(ctx, r.Client, pod, next.Encode())
	if !isWritten {
		s.LookAgain(lookLoading)
	}
	return err
}

// writeAdapters writes the list into a pod, unless the pod is newer than the cached one, whose list is the base of this
// one. A later pass writes it then, or into the successor of a vanished pod.
func writeAdapters(ctx context.Context, to client.Writer, pod *corev1.Pod, text string) (isWritten bool, err error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]string{v1beta1.AnnotationAdapters: text},
	}})
	if err != nil {
		return false, fmt.Errorf("encoding the adapters of pod %s: %w", pod.Name, err)
	}
	into := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = to.Patch(ctx, into, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writing the adapters of pod %s: %w", pod.Name, err)
	}
	log.FromContext(ctx).Info("wrote the list of adapters of a pod", "pod", pod.Name)
	return true, nil
}

// observe reads which adapters the engine has loaded, unless it is ready and the status has them all: a new pod is
// ready only with all of them.
func (r *adapterLists) observe(ctx context.Context, s *scope.Scope, want []adapters.Adapter) error {
	stored := s.StoredAdapters()
	isDone := !slices.ContainsFunc(want, func(a adapters.Adapter) bool { return !slices.Contains(stored, a.Name) })
	state, again := adapters.State{Loaded: stored}, lookLoading
	pod := s.Leader()
	if pod == nil { // an engine takes minutes to start
		pod, again = s.FirstPod(), lookFailed
	} else if isDone {
		pod = nil
	}
	if pod != nil && pod.Status.PodIP != "" && r.Probe != nil {
		select {
		case r.probes <- struct{}{}:
			defer func() { <-r.probes }()
		default:
			s.LookAgain(lookLoading)
			return nil
		}
		found, err := r.read(ctx, s, pod)
		if ctx.Err() != nil {
			return fmt.Errorf("reading the adapters of the engine: %w", ctx.Err())
		}
		if err == nil { // otherwise the engine may be busy: what it served, it still serves
			state = found
		} else {
			log.FromContext(ctx).V(1).Info("the adapters of an engine could not be read", "pod", pod.Name, "reason", err.Error())
		}
	}
	s.Adapters = []v1beta1.AdapterStatus{}
	for _, a := range want {
		one := v1beta1.AdapterStatus{Name: a.Name, State: v1beta1.AdapterLoading}
		switch message, hasFailed := state.Failed[a.Name]; {
		case slices.Contains(state.Loaded, a.Name):
			one.State = v1beta1.AdapterLoaded
		case hasFailed:
			one.State, one.Message = v1beta1.AdapterFailed, message[:min(len(message), mostMessage)]
			s.LookAgain(lookFailed)
		default:
			s.LookAgain(again)
		}
		s.Adapters = append(s.Adapters, one)
	}
	s.Adapters = append(s.Adapters, unloaded(s.FirstPod(), want)...)
	return nil
}

func (r *adapterLists) read(ctx context.Context, s *scope.Scope, pod *corev1.Pod) (adapters.State, error) {
	at := engineprobe.Endpoint{Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(v1beta1.EnginePort))}
	var err error
	if at.Key, err = planning.APIKey(ctx, r.Live, s.Workspace); err != nil {
		return adapters.State{}, err
	}
	return r.Probe.Adapters(ctx, at)
}

// unloaded returns the adapters that a pod has served but the Workspace no longer lists. The status has room for some
// of them.
func unloaded(pod *corev1.Pod, want []adapters.Adapter) []v1beta1.AdapterStatus {
	if pod == nil {
		return nil
	}
	list, err := adapters.Decode(pod.Annotations[v1beta1.AnnotationAdapters])
	if err != nil {
		return nil
	}
	var out []v1beta1.AdapterStatus
	for _, a := range list.Gone {
		if adapters.Index(want, a.Name) < 0 && len(out) < mostUnloaded {
			out = append(out, v1beta1.AdapterStatus{Name: a.Name, State: v1beta1.AdapterUnloaded})
		}
	}
	return out
}

// mostUnloaded leaves room in the field for as many adapters as a spec has.
const mostUnloaded = 20

// mostMessage is the limit of the field.
const mostMessage = 1024
