// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package router_test checks the router's discovery on a real API server.
package router_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/router/discovery"
	"github.com/modelberth/modelberth/pkg/router/limit"
)

const (
	crds     = "../../../charts/modelberth/files/crds"
	patience = 30 * time.Second
	secret   = "sk-0123456789abcdef"
)

// TestDiscovery follows a Workspace from its creation to a ready pod, its loss, and a key to its deletion.
func TestDiscovery(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	environment := &envtest.Environment{CRDDirectoryPaths: []string{crds}, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme, err := app.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	keys := limit.NewKeys(1)
	scope := discovery.Scope{Namespaces: []string{"default"}, KeyNamespace: "kube-public"}
	found, err := discovery.New(config, scope, keys, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- found.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the first table is not complete")
	}
	create := func(object client.Object) {
		t.Helper()
		if err := api.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	replicas := func(model string) string {
		owner := found.Models().Find(model, func(string) bool { return true })
		if owner == nil {
			return "nobody"
		}
		return owner.ID() + " " + strings.Join(owner.Replicas, ",")
	}

	ws := &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "chat"},
		Resource:   v1beta1.ResourceSpec{InstanceType: "Standard_NC24ads_A100_v4"},
		Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "tiny-chat"}},
	}
	create(ws)
	eventually(t, "default:chat ", func() string { return replicas("tiny-chat") })
	ws.Status.Endpoint = &v1beta1.Endpoint{URL: "http://chat.default", Models: []string{"tiny-chat", "adapter"}}
	if err := api.Status().Update(ctx, ws); err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "chat-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: "chat", v1beta1.LabelWorkspace: "chat",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(5000))}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.1.2.3"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "chat-0"},
		}},
	}
	create(slice)
	eventually(t, "default:chat 10.1.2.3:5000", func() string { return replicas("adapter") })
	slice.Endpoints[0].Conditions.Ready = new(false)
	if err := api.Update(ctx, slice); err != nil {
		t.Fatal(err)
	}
	eventually(t, "default:chat ", func() string { return replicas("adapter") })

	create(&v1beta1.InferenceSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "asleep"},
		Spec: v1beta1.InferenceSetSpec{Template: v1beta1.InferenceSetTemplate{
			Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "tiny-chat"}},
		}},
	})
	eventually(t, "default:asleep ", func() string { return replicas("asleep") })

	stored := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "team-a", Labels: map[string]string{discovery.LabelKey: "true"}},
		StringData: map[string]string{"key": secret, "namespaces": "default"},
	}
	create(stored)
	name := func() string {
		if c := keys.Find(secret); c != nil {
			return c.Name()
		}
		return ""
	}
	eventually(t, "team-a", name)
	if err := api.Delete(ctx, stored); err != nil {
		t.Fatal(err)
	}
	eventually(t, "", name)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
}

// eventually waits until get returns want.
func eventually(t *testing.T, want string, get func() string) {
	t.Helper()
	ticker, until := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer ticker.Stop()
	for {
		diff := cmp.Diff(want, get())
		if diff == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-until:
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}
