// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// services is an API server with Services, and its cache.
type services struct {
	client.Client // what is not simulated

	scheme   *kruntime.Scheme
	objects  map[client.ObjectKey]*corev1.Service
	version  int
	requests int
	informer *controllertest.FakeInformer
	// get is called before each read of the cache; nil for nothing.
	get func()
}

func newServices(t testing.TB) (*services, *Applier) {
	t.Helper()
	s := &services{scheme: kruntime.NewScheme(), objects: map[client.ObjectKey]*corev1.Service{}}
	for _, add := range []func(*kruntime.Scheme) error{corev1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(s.scheme); err != nil {
			t.Fatal(err)
		}
	}
	informers := &informertest.FakeInformers{Scheme: s.scheme}
	var err error
	if s.informer, err = informers.FakeInformerFor(t.Context(), &corev1.Service{}); err != nil {
		t.Fatal(err)
	}
	return s, New(s, nil, informers, clock.RealClock{})
}

func (s *services) Scheme() *kruntime.Scheme { return s.scheme }

func (s *services) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if s.get != nil {
		s.get()
	}
	found := s.objects[key]
	out, isService := object.(*corev1.Service)
	if found == nil || !isService {
		return apierrors.NewNotFound(corev1.Resource("services"), key.Name)
	}
	found.DeepCopyInto(out)
	return nil
}

func (s *services) Apply(_ context.Context, applied kruntime.ApplyConfiguration, _ ...client.ApplyOption) error {
	s.requests++
	encoded, err := json.Marshal(applied)
	object := &corev1.Service{}
	if err == nil {
		err = json.Unmarshal(encoded, object)
	}
	if err == nil {
		s.store(object)
	}
	return err
}

// store stores an object with a new version, and with a UID unless it has one.
func (s *services) store(object *corev1.Service) {
	s.version++
	object.ResourceVersion = strconv.Itoa(s.version)
	if object.UID == "" {
		object.UID = types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", s.version))
	}
	s.objects[client.ObjectKeyFromObject(object)] = object
}

// delete deletes an object, and reports it as an informer does.
func (s *services) delete(key client.ObjectKey, report func(*corev1.Service)) {
	object := s.objects[key]
	delete(s.objects, key)
	report(object)
}

func numbered(i int) (*v1beta1.Workspace, *corev1.Service) {
	ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: fmt.Sprint("chat-", i), UID: types.UID(fmt.Sprint("uid-", i))}}
	return ws, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ws.Namespace, Name: ws.Name, Labels: map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ws, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
		},
		Spec: corev1.ServiceSpec{Selector: map[string]string{v1beta1.LabelWorkspace: ws.Name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// pass applies some objects.
func pass(t testing.TB, a *Applier, count int) {
	t.Helper()
	for i := range count {
		ws, desired := numbered(i)
		if _, err := a.Apply(t.Context(), ws, desired); err != nil {
			t.Fatal(err)
		}
	}
}

// settledOf returns how many of some objects need no comparison.
func settledOf(t *testing.T, a *Applier, count int) (settled int) {
	t.Helper()
	for i := range count {
		ws, desired := numbered(i)
		found, err := a.look(t.Context(), a.cached, ws, desired)
		if err != nil {
			t.Fatal(err)
		}
		if found.isSettled {
			settled++
		}
	}
	return settled
}

// TestManySettledObjects passes over 20,000 objects, as of 5,000 Workspaces. Each one is compared once, and its record
// ends with it.
func TestManySettledObjects(t *testing.T) {
	const count = 20_000
	s, a := newServices(t)
	pass(t, a, count)
	before := heap()
	pass(t, a, count)
	t.Logf("%.0f bytes for each record", float64(heap()-before)/count)
	if settled := settledOf(t, a, count); settled != count || s.requests != count {
		t.Errorf("%d of %d objects are settled, after %d requests more than their creations", settled, count, s.requests-count)
	}
	for key := range s.objects {
		s.delete(key, func(object *corev1.Service) { s.informer.Delete(object) })
	}
	if len(a.settled.seen) > 0 {
		t.Errorf("%d records are left of deleted objects", len(a.settled.seen))
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestRecordsEndWithTheirObjects has one settled object that goes in different ways.
func TestRecordsEndWithTheirObjects(t *testing.T) {
	ws, desired := numbered(0)
	key := client.ObjectKeyFromObject(desired)
	missed := func(object *corev1.Service) any {
		return toolscache.DeletedFinalStateUnknown{Key: key.String(), Obj: object}
	}
	tests := []struct {
		reason string
		change func(s *services, handler toolscache.ResourceEventHandler)
		left   int
	}{
		{"a change of the object", func(s *services, handler toolscache.ResourceEventHandler) {
			handler.OnUpdate(s.objects[key], s.objects[key])
		}, 1},
		{"a deletion", func(s *services, handler toolscache.ResourceEventHandler) {
			s.delete(key, func(object *corev1.Service) { handler.OnDelete(object) })
		}, 0},
		{"a deletion that the watch missed", func(s *services, handler toolscache.ResourceEventHandler) {
			s.delete(key, func(object *corev1.Service) { handler.OnDelete(missed(object)) })
		}, 0},
		{"a new object of the same name", func(s *services, handler toolscache.ResourceEventHandler) {
			s.delete(key, func(object *corev1.Service) {
				other := object.DeepCopy()
				other.UID = ""
				s.store(other)
				handler.OnUpdate(object, other)
			})
		}, 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s, a := newServices(t)
			for range 2 {
				if _, err := a.Apply(t.Context(), ws, desired); err != nil {
					t.Fatal(err)
				}
			}
			if len(a.settled.seen) != 1 {
				t.Fatalf("%d records of a settled object", len(a.settled.seen))
			}
			test.change(s, toolscache.ResourceEventHandlerFuncs{UpdateFunc: a.settled.updated, DeleteFunc: a.settled.deleted})
			if len(a.settled.seen) != test.left {
				t.Errorf("%d records are left, want %d", len(a.settled.seen), test.left)
			}
		})
	}
}

// TestDeletionDuringAComparison reports the deletion of an object before its record is made.
func TestDeletionDuringAComparison(t *testing.T) {
	s, a := newServices(t)
	pass(t, a, 2) // the second object is only compared below
	ws, desired := numbered(0)
	if _, err := a.Apply(t.Context(), ws, desired); err != nil {
		t.Fatal(err)
	}
	ws, desired = numbered(1)
	reads := 0
	s.get = func() {
		reads++
		if reads == 2 { // the read after the comparison
			s.delete(client.ObjectKeyFromObject(desired), func(*corev1.Service) {}) // the report came before the record
		}
	}
	if _, err := a.Apply(t.Context(), ws, desired); err != nil {
		t.Fatal(err)
	}
	if reads != 2 || len(a.settled.seen) != 1 {
		t.Errorf("%d records are left after %d reads, want only that of the other object", len(a.settled.seen), reads)
	}
}

// TestKindsWithoutReports: if the deletions of a kind are not reported, nothing is recorded, and objects are compared.
func TestKindsWithoutReports(t *testing.T) {
	s, a := newServices(t)
	a.settled.informers = &informertest.FakeInformers{Error: fmt.Errorf("the API server does not serve it")}
	pass(t, a, 3)
	pass(t, a, 3)
	if settled := settledOf(t, a, 3); settled > 0 || s.requests != 3 || len(a.settled.seen) > 0 {
		t.Errorf("%d objects are settled after %d requests, with %d records", settled, s.requests, len(a.settled.seen))
	}
}

// BenchmarkSettled compares passes over an object with and without its record.
func BenchmarkSettled(b *testing.B) {
	for _, isKept := range []bool{true, false} {
		b.Run(fmt.Sprintf("recorded=%v", isKept), func(b *testing.B) {
			_, a := newServices(b)
			if !isKept {
				a.settled.informers = nil
			}
			pass(b, a, 1)
			for b.Loop() {
				pass(b, a, 1)
			}
		})
	}
}
