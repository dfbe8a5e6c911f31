// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

func owner(uid string) *v1beta1.Workspace {
	ws := &v1beta1.Workspace{}
	ws.Namespace, ws.Name, ws.UID = "team-a", "chat", "uid-1"
	if uid != "" {
		ws.UID = "uid-2"
	}
	return ws
}

func service(by *v1beta1.Workspace, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "chat", Labels: map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(by, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind)),
			},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{v1beta1.LabelWorkspace: "chat"},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(5000)}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// cluster is an API server with a count of applies, and a cache in front of it.
type cluster struct {
	applier *apply.Applier
	server  client.WithWatch
	applies int
	// over is the required version of the last apply; empty if any version was accepted.
	over string
}

// metadataOf returns the metadata of an applied object.
func metadataOf(sent runtime.ApplyConfiguration) (metav1.PartialObjectMetadata, error) {
	var out metav1.PartialObjectMetadata
	encoded, err := json.Marshal(sent)
	if err == nil {
		err = json.Unmarshal(encoded, &out)
	}
	return out, err
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{}
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	c.server = interceptor.NewClient(server, interceptor.Funcs{
		Apply: func(ctx context.Context, inner client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			c.applies++
			sent, err := metadataOf(o)
			if err != nil {
				return err
			}
			c.over = sent.ResourceVersion
			return inner.Apply(ctx, o, options...)
		},
	})
	c.applier = apply.New(c.server, c.server, nil, clock.RealClock{})
	return c
}

func (c *cluster) apply(t *testing.T, by *v1beta1.Workspace, desired client.Object) bool {
	t.Helper()
	before := c.applies
	wrote, err := c.applier.Apply(t.Context(), by, desired)
	if err != nil {
		t.Fatal(err)
	}
	if wrote != (c.applies > before) {
		t.Errorf("Apply says wrote=%v, the server saw %d applies", wrote, c.applies-before)
	}
	return wrote
}

func (c *cluster) get(t *testing.T) *corev1.Service {
	t.Helper()
	got := &corev1.Service{}
	if err := c.server.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "chat"}, got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestApplyWritesOnlyDifferences(t *testing.T) {
	c := newCluster(t)
	ws := owner("")
	if !c.apply(t, ws, service(ws)) {
		t.Error("an object that is missing was not made")
	}
	if c.apply(t, ws, service(ws)) {
		t.Error("an object that is as desired was written again")
	}

	got := c.get(t)
	got.Spec.ClusterIP = "10.0.0.1"
	got.Labels["someone"] = "else"
	if err := c.server.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if c.apply(t, ws, service(ws)) {
		t.Error("a field that the server or others set caused a write")
	}

	got = c.get(t)
	got.Spec.Ports[0].TargetPort = intstr.FromInt32(9)
	if err := c.server.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if !c.apply(t, ws, service(ws)) || c.get(t).Spec.Ports[0].TargetPort.IntValue() != 5000 {
		t.Error("a changed field was not put back")
	}

	lean := service(ws, func(s *corev1.Service) { delete(s.Labels, v1beta1.LabelManagedBy) })
	if !c.apply(t, ws, lean) || c.get(t).Labels[v1beta1.LabelManagedBy] != "" {
		t.Error("a field that is no longer desired was not taken out")
	}
	if c.get(t).Labels["someone"] != "else" {
		t.Error("a label of somebody else was taken out")
	}
}

// Values copied from a read object are written only over its version. The version alone is no reason to write.
func TestApplyOverOneVersion(t *testing.T) {
	c := newCluster(t)
	ws := owner("")
	c.apply(t, ws, service(ws))
	read := c.get(t).ResourceVersion
	if c.apply(t, ws, service(ws, func(s *corev1.Service) { s.ResourceVersion = read })) {
		t.Error("an object that is as desired was written for its version")
	}
	other := func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }
	c.apply(t, ws, service(ws, other))
	if c.over != "" {
		t.Errorf("applied over version %q, which nobody asked for", c.over)
	}
	c.apply(t, ws, service(ws, func(s *corev1.Service) { s.ResourceVersion = read }))
	if c.over != read {
		t.Errorf("applied over version %q, want %q: the server refuses that, because there is a later one", c.over, read)
	}
}

func TestApplyLeavesForeignObjectsAlone(t *testing.T) {
	now := metav1.Now()
	tests := []struct {
		reason   string
		existing *corev1.Service
		want     any
	}{
		{
			"nobody's object", service(owner(""), func(s *corev1.Service) { s.OwnerReferences = nil }),
			&apply.TakenError{},
		},
		{
			"another controller's object", service(owner(""), func(s *corev1.Service) {
				s.OwnerReferences[0].Kind, s.OwnerReferences[0].UID = "Deployment", "other"
			}), &apply.TakenError{},
		},
		{
			"an object of a set of the Workspace's name", service(owner(""), func(s *corev1.Service) {
				s.OwnerReferences[0].Kind, s.OwnerReferences[0].UID = v1beta1.InferenceSetKind, "other"
			}), &apply.TakenError{},
		},
		{
			"an object of the Workspace that had this name before", service(owner("former")),
			&apply.TerminatingError{},
		},
		{
			"our own object on its way out", service(owner(""), func(s *corev1.Service) {
				s.DeletionTimestamp, s.Finalizers = &now, []string{"example.dev/hold"}
			}), &apply.TerminatingError{},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := newCluster(t, test.existing)
			before := c.get(t)
			ws := owner("")
			_, applyErr := c.applier.Apply(t.Context(), ws, service(ws))
			checkErr := c.applier.Check(t.Context(), ws, service(ws))
			_, stateErr := c.applier.State(t.Context(), ws, service(ws))
			for _, err := range []error{applyErr, checkErr, stateErr} {
				var taken *apply.TakenError
				var terminating *apply.TerminatingError
				_, wantTaken := test.want.(*apply.TakenError)
				if errors.As(err, &taken) != wantTaken || errors.As(err, &terminating) == wantTaken {
					t.Errorf("error %v, want %T", err, test.want)
				}
			}
			if c.applies != 0 || c.get(t).ResourceVersion != before.ResourceVersion {
				t.Error("the object was touched")
			}
		})
	}
}

// strict returns an API server that does not create over a version, as for a deleted object.
func strict(server client.WithWatch) client.WithWatch {
	return interceptor.NewClient(server, interceptor.Funcs{
		Apply: func(ctx context.Context, inner client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			sent, err := metadataOf(o)
			if err != nil {
				return err
			}
			err = inner.Get(ctx, client.ObjectKey{Namespace: sent.Namespace, Name: sent.Name}, &corev1.Service{})
			if sent.ResourceVersion != "" && apierrors.IsNotFound(err) {
				return apierrors.NewConflict(corev1.Resource("services"), sent.Name, errors.New("it is gone"))
			}
			return inner.Apply(ctx, o, options...)
		},
	})
}

func TestNothingIsMadeOverAVersion(t *testing.T) {
	ws := owner("")
	c := newCluster(t)
	if wrote, err := apply.New(strict(c.server), c.server, nil, clock.RealClock{}).Apply(t.Context(), ws, service(ws)); err != nil || !wrote {
		t.Errorf("applying: wrote %t, %v", wrote, err)
	}
	if got := c.get(t); got.Name != "chat" {
		t.Errorf("got %+v", got)
	}
}

// State predicts the result of Apply from the cache, without a write.
func TestState(t *testing.T) {
	ws := owner("")
	tests := []struct {
		reason string
		do     func(t *testing.T, c *cluster)
		want   apply.State
	}{
		{"not there", func(*testing.T, *cluster) {}, apply.Missing},
		{"as desired", func(t *testing.T, c *cluster) { c.apply(t, ws, service(ws)) }, apply.Applied},
		{"as something else was desired", func(t *testing.T, c *cluster) {
			c.apply(t, ws, service(ws, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }))
		}, apply.Outdated},
		{"changed by somebody", func(t *testing.T, c *cluster) {
			c.apply(t, ws, service(ws))
			got := c.get(t)
			got.Spec.Selector = map[string]string{"app": "other"}
			if err := c.server.Update(t.Context(), got); err != nil {
				t.Fatal(err)
			}
		}, apply.Outdated},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := newCluster(t)
			test.do(t, c)
			before := c.applies
			for range 2 { // the second result comes from the record
				got, err := c.applier.State(t.Context(), ws, service(ws))
				if err != nil || got != test.want {
					t.Errorf("State: %v, %v; want %v", got, err, test.want)
				}
			}
			if c.applies != before {
				t.Error("it wrote")
			}
		})
	}
}
