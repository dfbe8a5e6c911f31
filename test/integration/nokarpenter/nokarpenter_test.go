// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nokarpenter_test tests the controller in a cluster without Karpenter: on a real API server without its
// CustomResourceDefinitions.
package nokarpenter_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/options"
)

// patience is how long the story may take to reach its next point.
const patience = 30 * time.Second

// TestWithoutKarpenter: the controller starts, plans, reports the missing part, uses a new node, releases a Workspace,
// and does not end on its own.
func TestWithoutKarpenter(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	config := startAPIServer(t)
	done := startController(t, config)
	scheme, err := app.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ws := &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "chat"},
		Resource:   v1beta1.ResourceSpec{InstanceType: "Standard_NC24ads_A100_v4"},
		Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "tiny-chat"}},
	}
	if err := api.Create(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	stalled := untilStalled(t, api, ws)
	if !strings.Contains(stalled.Message, "nodeclaims.karpenter.sh") || !strings.Contains(stalled.Message, "install Karpenter") {
		t.Errorf("message %q names neither what is missing nor the remedy", stalled.Message)
	}
	if ws.Status.Plan == nil || ws.Status.State != v1beta1.StatePending {
		t.Errorf("state %q, plan %+v; want Pending, and a plan although it cannot be bought", ws.Status.State, ws.Status.Plan)
	}
	useNode(t, api, ws)
	if err := api.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gone", func() (bool, string) {
		err := api.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
		return apierrors.IsNotFound(err), "finalizers " + strings.Join(ws.Finalizers, ",")
	})
	select {
	case err := <-done:
		t.Errorf("the controller ended by itself: %v", err)
	default:
	}
}

// useNode adds a suitable node, as an administrator would: it is used, although nothing can be bought.
func useNode(t *testing.T, api client.Client, ws *v1beta1.Workspace) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", Labels: map[string]string{
		corev1.LabelInstanceTypeStable: ws.Resource.InstanceType,
	}}}
	if err := api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status = corev1.NodeStatus{
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("24"), corev1.ResourceMemory: resource.MustParse("200Gi"),
			"nvidia.com/gpu": resource.MustParse("1"),
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	if err := api.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Spec.Taints = nil // the API server adds the taint not-ready, and no controller here removes it
	if err := api.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "on the node", func() (bool, string) {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		nodes, stalled := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionNodesReady),
			meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionStalled)
		isThere := nodes != nil && nodes.Status == metav1.ConditionTrue && !stalled
		return isThere && slices.Equal(ws.Status.WorkerNodes, []string{node.Name}), fmt.Sprintf("%+v", nodes)
	})
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(ws), &appsv1.StatefulSet{}); err != nil {
		t.Errorf("StatefulSet: %v", err)
	}
}

func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "charts", "modelberth", "files", "crds")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("starting the API server (run these tests with `make test-integration`): %v", err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	return config
}

// startController runs the controller as in production. The channel gets its final error.
func startController(t *testing.T, config *rest.Config) <-chan error {
	t.Helper()
	overlay, err := filepath.Abs(filepath.Join("..", "..", "..", "examples", "local-catalog"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := app.NewManager(ctx, config, options.Controller{
		MultiNode: isolation.Allow, // nothing here has a network to probe
		Metrics:   options.Metrics{Address: "0"}, HealthAddress: "0", Workers: 4, QPS: 200, Burst: 400, CatalogOverlay: overlay,
		AgentImage: "registry.example/agent:test", HubEndpoint: "http://hub.example",
		NodeClasses: []v1beta1.NodeClassReference{{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "default"}},
	}, app.Hooks{SkipNameValidation: true})
	if err != nil {
		cancel()
		t.Fatalf("making the controller: %v", err)
	}
	done, ended := make(chan error, 1), make(chan struct{})
	go func() {
		done <- mgr.Start(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the controller does not stop")
		}
	})
	return done
}

// untilStalled waits until a Workspace reports that no provisioner is installed.
func untilStalled(t *testing.T, api client.Client, ws *v1beta1.Workspace) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	eventually(t, "Stalled(ProvisionerNotInstalled)", func() (bool, string) {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		var seen []string
		for _, condition := range ws.Status.Conditions {
			seen = append(seen, condition.Type+"="+string(condition.Status)+"("+condition.Reason+")")
			if condition.Type == v1beta1.ConditionStalled && condition.Reason == v1beta1.ReasonProvisionerNotInstalled {
				found = condition
				return condition.Status == metav1.ConditionTrue, ""
			}
		}
		return false, strings.Join(seen, " ")
	})
	return found
}

// eventually waits until done is true, and reports the last state otherwise.
func eventually(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	seen := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var ok bool
		if ok, seen = done(); ok {
			return
		}
	}
	t.Fatalf("%s: not within %s; last seen: %s", what, patience, seen)
}
