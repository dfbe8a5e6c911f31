// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forms_test tests manifests in the forms of KAITO's users: the API server's stored form and warnings, and the
// controller's plan or message. No machine can be bought here, so a Workspace gets no further than a plan.
package forms_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/options"
)

var update = flag.Bool("update", false, "write the golden file")

// patience is how long a plan may take.
const patience = 60 * time.Second

// chart is the directory with the rules.
const chart = "../../../charts/modelberth/files"

// Verdicts of the contract.
const (
	accept = "A"
	warn   = "A!"
	refuse = "refuse"
)

// form is a manifest with its row of the contract.
type form struct {
	verdict, about string
	object         *unstructured.Unstructured
}

// outcome is the result of a manifest.
type outcome struct {
	// refused by the API server, and warned by it.
	refused string
	warned  []string
	ws      *v1beta1.Workspace
}

func TestForms(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	heard := &warnings{}
	config := startAPIServer(t)
	config.WarningHandlerWithContext = heard
	scheme, err := app.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	installPolicies(t, api, heard)
	startController(t, config)
	var text strings.Builder
	forms := readForms(t)
	addNodes(t, api, "accelerator", "llm-inference")
	for _, f := range forms {
		if f.object.GetKind() != v1beta1.WorkspaceKind {
			if err := api.Create(t.Context(), f.object); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, f := range forms {
		if f.object.GetKind() != v1beta1.WorkspaceKind {
			continue
		}
		got := apply(t, api, heard, f)
		check(t, f, got)
		write(&text, f, got)
	}
	golden(t, text.String())
}

// apply stores a manifest and waits for the controller's word on it.
func apply(t *testing.T, api client.Client, heard *warnings, f form) outcome {
	t.Helper()
	heard.take()
	err := api.Create(t.Context(), f.object)
	out := outcome{warned: heard.take()}
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		out.refused = err.Error()
		return out
	case err != nil:
		t.Fatalf("%s: %v", f.object.GetName(), err)
	}
	out.ws = &v1beta1.Workspace{}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(f.object), out.ws); err != nil {
			t.Fatal(err)
		}
		if planned := meta.FindStatusCondition(out.ws.Status.Conditions, v1beta1.ConditionPlanned); planned != nil &&
			planned.Status != metav1.ConditionUnknown {
			return out
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s: the controller says nothing of it: %+v", f.object.GetName(), out.ws.Status.Conditions)
	return out
}

// planned is the condition about the plan.
func (o outcome) planned() metav1.Condition {
	return *meta.FindStatusCondition(o.ws.Status.Conditions, v1beta1.ConditionPlanned)
}

// tells reports whether the outcome shows a user that something deviates from the manifest.
func (o outcome) tells() bool {
	return len(o.warned) > 0 || o.planned().Status == metav1.ConditionFalse ||
		o.ws.Status.Plan != nil && len(o.ws.Status.Plan.Warnings) > 0
}

// addNodes makes a node with four GPUs for each value of the label apps.
func addNodes(t *testing.T, api client.Client, values ...string) {
	t.Helper()
	for _, value := range values {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-" + value, Labels: map[string]string{
			"apps": value, corev1.LabelHostname: "gpu-" + value,
			"nvidia.com/gpu.product": "NVIDIA-A100-80GB-PCIe", "nvidia.com/gpu.count": "4", "nvidia.com/gpu.memory": "81920",
		}}}
		if err := api.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		node.Spec.Taints = nil // the API server adds the taint not-ready, and no controller here removes it
		if err := api.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		node.Status.Capacity = corev1.ResourceList{
			"nvidia.com/gpu": resource.MustParse("4"), corev1.ResourceCPU: resource.MustParse("96"),
			corev1.ResourceMemory: resource.MustParse("880Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("1000Gi"),
			corev1.ResourcePods: resource.MustParse("110"),
		}
		node.Status.Allocatable = node.Status.Capacity
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := api.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
}

// better are the forms for which KAITO buys too many machines. The contract requires a comment on them, but here they
// just serve.
func better() []string { return []string{"gpt-oss-20b", "gpt-oss-120b", "qwen-2-5-coder-32b"} }

// check compares the outcome with the contract's verdict.
func check(t *testing.T, f form, got outcome) {
	t.Helper()
	name := f.object.GetName()
	if got.refused != "" {
		if f.verdict != refuse {
			t.Errorf("%s is refused: %s", name, got.refused)
		}
		return
	}
	planned := got.planned()
	if planned.Status == metav1.ConditionFalse && (planned.Message == "" || got.ws.Status.Plan != nil) {
		t.Errorf("%s: a refusal without words, or with a plan: %+v", name, planned)
	}
	switch f.verdict {
	case accept:
		if planned.Status != metav1.ConditionTrue {
			t.Errorf("%s: %s, %s, want a plan", name, planned.Reason, planned.Message)
		}
	case warn:
		if !got.tells() && !slices.Contains(better(), name) {
			t.Errorf("%s: nobody is told anything", name)
		}
	case refuse:
		if planned.Status != metav1.ConditionFalse {
			t.Errorf("%s is planned: %s", name, planned.Message)
		}
	default:
		t.Errorf("%s: verdict %q", name, f.verdict)
	}
}

// write writes a user's view.
func write(text *strings.Builder, f form, got outcome) {
	fmt.Fprintf(text, "## %s\n%s: %s\n", f.object.GetName(), f.verdict, f.about)
	for _, warning := range got.warned {
		fmt.Fprintf(text, "warning: %s\n", warning)
	}
	if got.refused != "" {
		fmt.Fprintf(text, "refused: %s\n\n", got.refused)
		return
	}
	planned := got.planned()
	if planned.Status == metav1.ConditionFalse {
		fmt.Fprintf(text, "stored; %s: %s\n\n", planned.Reason, planned.Message)
		return
	}
	plan := got.ws.Status.Plan
	fmt.Fprintf(text, "stored; plan: %s\n", plan.Summary)
	for _, warning := range plan.Warnings {
		fmt.Fprintf(text, "plan warns: %s\n", warning)
	}
	text.WriteString("\n")
}

func golden(t *testing.T, got string) {
	t.Helper()
	path := filepath.Join("testdata", "verdicts.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run the test with -update to write it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", path, diff)
	}
}

// readForms reads the manifests. The comment above each Workspace holds the verdict.
func readForms(t *testing.T) []form {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "manifests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out []form
	for _, document := range bytes.Split(data, []byte("\n---\n"))[1:] {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		object.SetNamespace("default")
		comment, _, _ := strings.Cut(string(document), "\n")
		verdict, about, _ := strings.Cut(strings.TrimPrefix(comment, "# "), ": ")
		out = append(out, form{verdict: verdict, about: about, object: object})
	}
	return out
}

// installPolicies installs the chart's admission policies, and waits until they are in effect.
func installPolicies(t *testing.T, api client.Client, heard *warnings) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart, "policies", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("policies: %v, %v", files, err)
	}
	for _, file := range files {
		for _, object := range readObjects(t, file) {
			if err := api.Create(t.Context(), object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		heard.take()
		canary := &v1beta1.Workspace{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "canary"},
			Resource:   v1beta1.ResourceSpec{PreferredNodes: []string{"node-1"}},
			Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "phi-4"}},
		}
		err := api.Create(t.Context(), canary, client.DryRunAll)
		warned := len(heard.take()) > 0
		canary.Name = "1-canary"
		if refused := api.Create(t.Context(), canary, client.DryRunAll); err == nil && warned && refused != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the policies are not heeded")
}

func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
	return out
}

func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	environment := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join(chart, "crds")}, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("starting the API server (run these tests with `make test-integration`): %v", err)
	}
	config.QPS, config.Burst = -1, -1
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	return config
}

// startController runs it as it is wired in production, in a cluster without Karpenter.
func startController(t *testing.T, config *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := app.NewManager(ctx, config, options.Controller{
		MultiNode: isolation.Allow, // nothing here has a network to probe
		Metrics:   options.Metrics{Address: "0"}, HealthAddress: "0", Workers: 2, QPS: 200, Burst: 400, AgentImage: "registry.example/agent:test",
		Region: "eastus",
	}, app.Hooks{SkipNameValidation: true})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("the controller stopped: %v", err)
			}
		case <-time.After(patience):
			t.Error("the controller does not stop")
		}
	})
}

// warnings collects the API server's warnings.
type warnings struct {
	mu    sync.Mutex
	heard []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, message, _ := strings.Cut(text, "binding 'modelberth-workspaces-warnings': ")
	if message == "" {
		message = text
	}
	w.heard = append(w.heard, message)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.heard
	w.heard = nil
	return heard
}
