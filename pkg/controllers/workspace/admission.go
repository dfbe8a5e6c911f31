// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/admission"
	"github.com/modelberth/modelberth/pkg/workload"
)

// retryAdmission is how often a Workspace looks again whose namespace refuses its pods. Watches report
// what changes, and the look reads caches.
const retryAdmission = 10 * time.Minute

// checkAdmitted returns an error if the namespace would refuse the pods of a plan, before machines are
// bought for it.
func (r *Reconciler) checkAdmitted(ctx context.Context, s *scope, made *revision) error {
	if r.Admission == nil {
		return nil
	}
	key := client.ObjectKeyFromObject(s.ws)
	r.unadmitted.add(key) // before it looks: what changes meanwhile must wake it
	namespace, err := r.admissionRules(ctx, s)
	if err != nil {
		return err
	}
	problem := r.Admission.Reserve(r.Clock.Now(), s.ws.UID, namespace, s.podDemand(made))
	if problem == nil {
		r.unadmitted.remove(key)
		return nil
	}
	reason, message := admissionReason(problem.Rule), "nothing is bought yet: "+problem.Message
	if problem.Passing {
		return &waitingError{reason: reason, message: message, after: retryAdmission}
	}
	return &stalledError{reason: reason, message: message, retryAfter: retryAdmission}
}

// admissionRules reads the rules for pods of the Workspace's namespace from caches.
func (r *Reconciler) admissionRules(ctx context.Context, s *scope) (admission.Namespace, error) {
	name := s.ws.Namespace
	out := admission.Namespace{Name: name, Labels: s.namespace.Labels}
	quotas, limits := &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}
	if err := r.Client.List(ctx, quotas, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing the ResourceQuotas of namespace %s: %w", name, err)
	}
	if err := r.Client.List(ctx, limits, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing the LimitRanges of namespace %s: %w", name, err)
	}
	out.Quotas, out.Limits = quotas.Items, limits.Items
	return out, nil
}

// podDemand is what a plan wants to create, beside what is there.
func (s *scope) podDemand(made *revision) admission.Demand {
	out := admission.Demand{ExistingSets: len(s.sets())}
	for _, object := range made.Pods(s.ws, made.Name, workload.Group{}) {
		if set, ok := object.(*appsv1.StatefulSet); ok {
			out.Sets = append(out.Sets, set)
		}
	}
	for i := range s.pods {
		if phase := s.pods[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			out.Pods = append(out.Pods, s.pods[i])
		}
	}
	return out
}

func admissionReason(rule admission.Rule) string {
	switch rule {
	case admission.PodSecurity:
		return v1beta1.ReasonPodSecurityViolation
	case admission.LimitRange:
		return v1beta1.ReasonLimitRangeViolation
	default:
		return v1beta1.ReasonResourceQuotaExceeded
	}
}

// settlePods ends what is promised to a Workspace in its namespace's quotas: its pods are there, or do
// not come.
func (r *Reconciler) settlePods(workspace types.UID) {
	if r.Admission != nil {
		r.Admission.Settle(workspace)
	}
}

// unadmitted are the Workspaces whose namespaces refuse their pods, by namespace.
type unadmitted struct {
	mu   sync.Mutex
	keys map[string]map[types.NamespacedName]struct{}
}

func newUnadmitted() *unadmitted {
	return &unadmitted{keys: map[string]map[types.NamespacedName]struct{}{}}
}

func (u *unadmitted) add(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keys[key.Namespace] == nil {
		u.keys[key.Namespace] = map[types.NamespacedName]struct{}{}
	}
	u.keys[key.Namespace][key] = struct{}{}
}

func (u *unadmitted) remove(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.keys[key.Namespace], key)
	if len(u.keys[key.Namespace]) == 0 {
		delete(u.keys, key.Namespace)
	}
}

// requests are for those that wait in the namespace that an object is in.
func (u *unadmitted) requests(_ context.Context, object client.Object) []reconcile.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []reconcile.Request
	for _, key := range slices.SortedFunc(maps.Keys(u.keys[object.GetNamespace()]), func(a, b types.NamespacedName) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		out = append(out, reconcile.Request{NamespacedName: key})
	}
	return out
}

// quotaLoosened passes changes of a ResourceQuota that may admit more: another spec, or less in use.
func quotaLoosened() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.ResourceQuota)
		after, okAfter := e.ObjectNew.(*corev1.ResourceQuota)
		if !ok || !okAfter || before.Generation != after.Generation {
			return true
		}
		for name, was := range before.Status.Used {
			if is := after.Status.Used[name]; is.Cmp(was) < 0 {
				return true
			}
		}
		return false
	}}
}
