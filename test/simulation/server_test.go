// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// kind of the controller's objects.
type kind int

const (
	workspaces kind = iota
	claims
	nodes
	pods
	statefulSets
	services
	policies
	budgets
	revisions
	events
	endpoints
	configMaps
	kinds
)

// kindOf is the kind of an object or a list.
func kindOf(object runtime.Object) kind {
	switch object.(type) {
	case *v1beta1.Workspace, *v1beta1.WorkspaceList:
		return workspaces
	case *karpv1.NodeClaim, *karpv1.NodeClaimList:
		return claims
	case *corev1.Node, *corev1.NodeList:
		return nodes
	case *corev1.Pod, *corev1.PodList:
		return pods
	case *appsv1.StatefulSet, *appsv1.StatefulSetList:
		return statefulSets
	case *corev1.Service, *corev1.ServiceList:
		return services
	case *networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList:
		return policies
	case *policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList:
		return budgets
	case *appsv1.ControllerRevision, *appsv1.ControllerRevisionList:
		return revisions
	case *corev1.Event, *corev1.EventList:
		return events
	case *discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList:
		return endpoints
	default: // whatever else is asked for, there is none
		return configMaps
	}
}

// change is one write: before is nil for a new object, after for a deleted one.
type change struct {
	kind          kind
	before, after client.Object
	// at is when it was done, seen when the watches of the controller show it.
	at, seen time.Time
}

// server stands in for an API server: one order of writes, optimistic locks, preconditions, finalizers, and a
// log of each kind for whoever watches. Objects in it are never changed, only replaced.
type server struct {
	now     func() time.Time
	objects [kinds]map[types.NamespacedName]client.Object
	log     [kinds][]change
	// heard is how many changes of a kind every process has been shown.
	heard   [kinds]int
	uids    map[types.UID]bool
	version int64
	made    int
	// writes are those with a change.
	writes int
	// onChange is told of every write once it is done.
	onChange func(*change)
}

func newServer(now func() time.Time) *server {
	s := &server{now: now, onChange: func(*change) {}, uids: map[types.UID]bool{}}
	for k := range s.objects {
		s.objects[k] = map[types.NamespacedName]client.Object{}
	}
	return s
}

func (s *server) put(k kind, before, after client.Object) {
	if after == nil {
		delete(s.objects[k], client.ObjectKeyFromObject(before))
		delete(s.uids, before.GetUID())
	} else {
		s.uids[after.GetUID()] = true
		s.version++
		after.SetResourceVersion(strconv.FormatInt(s.version, 10))
		s.objects[k][client.ObjectKeyFromObject(after)] = after
	}
	s.writes++
	made := change{kind: k, before: before, after: after}
	s.onChange(&made)
	s.log[k] = append(s.log[k], made)
	if after == nil {
		s.collect(before)
	}
}

// collect is the garbage collector: the objects controlled by a deleted one are deleted, too.
func (s *server) collect(gone client.Object) {
	for k := range kinds {
		for _, object := range sorted(s.objects[k]) {
			if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.UID == gone.GetUID() {
				s.remove(object)
			}
		}
	}
}

// isOrphan reports whether an object's controller is gone: a process with an old view made it.
func (s *server) isOrphan(object client.Object) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	return owner != nil && !s.uids[owner.UID]
}

// remove takes an object away, whatever holds it.
func (s *server) remove(object client.Object) { s.put(kindOf(object), object, nil) }

// create stores a new object and fills in a server's fields.
func (s *server) create(object client.Object) error {
	k, key := kindOf(object), client.ObjectKeyFromObject(object)
	if s.objects[k][key] != nil {
		return apierrors.NewAlreadyExists(resourceOf(object), key.Name)
	}
	s.made++
	object.SetUID(types.UID(fmt.Sprintf("uid-%d", s.made)))
	object.SetCreationTimestamp(metav1.NewTime(s.now()).Rfc3339Copy())
	object.SetGeneration(1)
	stored := copied(object)
	s.put(k, nil, stored)
	object.SetResourceVersion(stored.GetResourceVersion())
	return nil
}

// delete begins the end of an object, or ends it without finalizers.
func (s *server) delete(object client.Object, uid *types.UID) error {
	k, key := kindOf(object), client.ObjectKeyFromObject(object)
	known := s.objects[k][key]
	switch {
	case known == nil:
		return apierrors.NewNotFound(resourceOf(object), key.Name)
	case uid != nil && *uid != known.GetUID():
		return apierrors.NewConflict(resourceOf(object), key.Name, fmt.Errorf("the UID is %s, not %s", known.GetUID(), *uid))
	case len(known.GetFinalizers()) == 0:
		s.remove(known)
	case known.GetDeletionTimestamp() == nil:
		leaving := copied(known)
		leaving.SetDeletionTimestamp(new(metav1.NewTime(s.now()).Rfc3339Copy()))
		leaving.SetGeneration(leaving.GetGeneration() + 1)
		s.put(k, known, leaving)
	}
	return nil
}

// replace stores another version of an object, and deletes it if that frees it.
func (s *server) replace(known, next client.Object) {
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 {
		s.remove(known)
		return
	}
	s.put(kindOf(known), known, next)
}

// edit changes an object like one of the cluster's controllers; false if it no longer exists.
func edit[T any, P object[T]](s *server, known P, change func(P)) bool {
	var zero P = new(T)
	current, ok := s.objects[kindOf(zero)][client.ObjectKeyFromObject(known)].(P)
	if !ok || current.GetUID() != known.GetUID() {
		return false
	}
	next := new(T)
	current.DeepCopyInto(next)
	change(next)
	s.replace(current, P(next))
	return true
}

// object is the common interface of the API's types.
type object[T any] interface {
	*T
	client.Object
	DeepCopyInto(into *T)
}

// all returns the objects of a type, by name.
func all[T any, P object[T]](s *server) []P {
	var zero P = new(T)
	var out []P
	for _, known := range sorted(s.objects[kindOf(zero)]) {
		if typed, ok := known.(P); ok {
			out = append(out, typed)
		}
	}
	return out
}

// sorted are objects in the order of their names.
func sorted(objects map[types.NamespacedName]client.Object) []client.Object {
	return slices.SortedFunc(maps.Values(objects), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func copied(known client.Object) client.Object {
	out, _ := known.DeepCopyObject().(client.Object) // a copy is of the same type
	return out
}

func resourceOf(of runtime.Object) schema.GroupResource {
	return schema.GroupResource{Resource: fmt.Sprintf("%T", of)}
}
