// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	preset    = "inference: {preset: {name: m}}"
	container = "containers: [{name: a, image: registry.example/approved/a}]"
)

func workspaceOf(t *testing.T, name, annotations, body string) *unstructured.Unstructured {
	t.Helper()
	objects, err := parse(fmt.Appendf(nil,
		"apiVersion: kaito.sh/v1beta1\nkind: Workspace\nmetadata: {name: %s, namespace: team-a, annotations: {%s}}\n%s\n", name, annotations, body))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, body)
	}
	return objects[0]
}

// limited installs the guards with every limit set, and takes them back after the test.
func limited(t *testing.T) {
	t.Helper()
	limits := `--set-json=allow={"templates":true,"engineImages":["registry.example/approved/"],"loadBalancer":false,` +
		`"serviceAccounts":["models"],"hostPaths":["/var/lib/models"]}`
	reinstall(t, true, limits)
	t.Cleanup(func() { reinstall(t, false) })
}

// reinstall waits until load balancers are refused, or are not. A policy for Workspaces and one for sets come into force at
// different times.
func reinstall(t *testing.T, refuses bool, values ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := install(ctx, values...); err != nil {
		t.Fatal(err)
	}
	const annotation = "kaito.sh/enablelb: 'True'"
	for _, canary := range []*unstructured.Unstructured{workspaceOf(t, "canary", annotation, preset), setOfWorkspaces(t, annotation, preset)} {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
			err := api.Create(ctx, canary.DeepCopy(), client.DryRunAll)
			return (err != nil) == refuses, nil
		})
		if err != nil {
			t.Fatalf("waiting until the limits are heeded for the kind %s: %v", canary.GetKind(), err)
		}
	}
}

// TestAllowed requests forbidden and allowed things, and compares with a release without limits.
func TestAllowed(t *testing.T) {
	tests := []struct {
		reason, annotations, body string
		// want is in the message; empty means that it passes.
		want string
		// always: it is refused without limits, too.
		always bool
	}{
		{reason: "a preset", body: preset},
		{reason: "an approved image", body: "inference: {preset: {name: m}, engine: {image: registry.example/approved/vllm:v1}}"},
		{
			reason: "another image", body: "inference: {preset: {name: m}, engine: {image: evil.example/vllm:v1}}",
			want: "only images that begin with registry.example/approved/ (allow.engineImages)",
		},
		{
			reason: "another image in a template", body: "inference: {template: {spec: {containers: [{name: a, image: evil.example/a}]}}}",
			want: "allow.engineImages",
		},
		{
			reason: "another image that begins a template's pod",
			body:   "inference: {template: {spec: {" + container + ", initContainers: [{name: b, image: evil.example/a}]}}}",
			want:   "allow.engineImages",
		},
		{reason: "an approved template", body: "inference: {template: {spec: {" + container + "}}}"},
		{reason: "a load balancer", annotations: "kaito.sh/enablelb: 'True'", body: preset, want: "allow.loadBalancer"},
		{reason: "no load balancer", annotations: "kaito.sh/enablelb: 'False'", body: preset},
		{reason: "an approved ServiceAccount", body: "inference: {preset: {name: m}, pod: {serviceAccountName: models}}"},
		{reason: "the default one", body: "inference: {preset: {name: m}, pod: {serviceAccountName: default}}"},
		{reason: "another ServiceAccount", body: "inference: {preset: {name: m}, pod: {serviceAccountName: admin}}", want: "allow.serviceAccounts"},
		{
			reason: "another ServiceAccount of a template", body: "inference: {template: {spec: {" + container + ", serviceAccountName: admin}}}",
			want: "allow.serviceAccounts",
		},
		{
			reason: "its former name", body: "inference: {template: {spec: {" + container + ", serviceAccount: admin}}}",
			want: "allow.serviceAccounts",
		},
		{
			reason: "an approved directory",
			body:   "inference: {template: {spec: {" + container + ", volumes: [{name: v, hostPath: {path: /var/lib/models/a}}]}}}",
		},
		{
			reason: "another directory", always: true,
			body: "inference: {template: {spec: {" + container + ", volumes: [{name: v, hostPath: {path: /var/lib/models-of-others}}]}}}",
			want: "allow.hostPaths",
		},
		{
			reason: "a mark of ours on a preset's pods", always: true, want: "modelberth.dev/machine",
			body: "inference: {preset: {name: m}, pod: {annotations: {modelberth.dev/machine: a}}}",
		},
		{
			reason: "a mark of ours on a template's pods", always: true, want: "modelberth.dev/workspace-uid",
			body: "inference: {template: {metadata: {labels: {modelberth.dev/workspace-uid: a}}, spec: {" + container + "}}}",
		},
		{
			reason: "a preset's pods for the machines of others", always: true, want: "cannot tolerate the taint modelberth.dev/workspace-uid",
			body: "inference: {preset: {name: m}, pod: {tolerations: [{key: modelberth.dev/workspace-uid, operator: Exists}]}}",
		},
		{
			reason: "a template's pods for the machines of others", always: true, want: "cannot tolerate the taint modelberth.dev/workspace-uid",
			body: "inference: {template: {spec: {tolerations: [{key: modelberth.dev/workspace-uid, value: uid-2}], " + container + "}}}",
		},
		{
			reason: "a label of Google's cloud", always: true, want: "cloud.google.com/gke-spot",
			body: "inference: {preset: {name: m}, pod: {labels: {cloud.google.com/gke-spot: 'true'}}}",
		},
		{
			reason: "a label of Azure", always: true, want: "kubernetes.azure.com/scalesetpriority",
			body: "inference: {preset: {name: m}, pod: {labels: {kubernetes.azure.com/scalesetpriority: 'true'}}}",
		},
		{
			reason: "a label of AWS", always: true, want: "eks.amazonaws.com/capacityType",
			body: "inference: {preset: {name: m}, pod: {labels: {eks.amazonaws.com/capacityType: 'true'}}}",
		},
		{
			reason: "a label of NVIDIA's operator", always: true, want: "nvidia.com/gpu.deploy.driver",
			body: "inference: {preset: {name: m}, pod: {labels: {nvidia.com/gpu.deploy.driver: 'true'}}}",
		},
		{
			reason: "labels and annotations of his own",
			body:   "inference: {preset: {name: m}, pod: {labels: {team: a, app.kubernetes.io/part-of: b}, annotations: {prometheus.io/scrape: 'true'}}}",
		},
		{
			reason: "the whole node", always: true,
			body: "inference: {template: {spec: {" + container + ", volumes: [{name: v, hostPath: {path: /}}]}}}",
			want: "allow.hostPaths",
		},
	}
	try := func(t *testing.T, limits bool) {
		for i, test := range tests {
			t.Run(test.reason, func(t *testing.T) {
				want := test.want
				if !limits && !test.always {
					want = ""
				}
				if !limits && strings.Contains(test.body, "/var/lib/models/a") {
					want = "allow.hostPaths" // nothing is allowed by default
				}
				err := user(t, "stranger").Create(t.Context(), workspaceOf(t, fmt.Sprintf("row-%d", i), test.annotations, test.body), client.DryRunAll)
				if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want it refused with %q", err, want)
				}
			})
		}
	}
	t.Run("without limits", func(t *testing.T) { try(t, false) })
	limited(t)
	t.Run("with limits", func(t *testing.T) { try(t, true) })
}

// TestTemplatesAreRefused: if templates are not allowed, and always in kube-system.
func TestTemplatesAreRefused(t *testing.T) {
	reinstall(t, true, "--set=allow.templates=false,allow.loadBalancer=false")
	t.Cleanup(func() { reinstall(t, false) })
	template := workspaceOf(t, "template", "", "inference: {template: {spec: {"+container+"}}}")
	refused := func(object *unstructured.Unstructured, want string) {
		t.Helper()
		var last error
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
			last = user(t, "stranger").Create(ctx, object.DeepCopy(), client.DryRunAll)
			return last != nil && strings.Contains(last.Error(), want), nil
		})
		if err != nil {
			t.Errorf("%v, want it refused with %q", last, want)
		}
	}
	refused(template, "allow.templates")
	system := workspaceOf(t, "system", "", preset)
	system.SetNamespace("kube-system")
	refused(system, "kube-system")
}

// TestLimitsLeaveWhatIsStoredAlone: a Workspace from before a limit can still be reported on, edited in other ways,
// suspended and deleted.
func TestLimitsLeaveWhatIsStoredAlone(t *testing.T) {
	body := "inference: {template: {spec: {serviceAccountName: admin, containers: [{name: a, image: evil.example/a}]}}}"
	stored := workspaceOf(t, "stored", "kaito.sh/enablelb: 'True'", body)
	stored.SetFinalizers([]string{"example.dev/hold"})
	if err := api.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reinstall(t, false) })
	reinstall(t, true, `--set-json=allow={"templates":false,"engineImages":["registry.example/approved/"],"loadBalancer":false,"serviceAccounts":["models"]}`)
	write := func(body string) error {
		return api.Patch(t.Context(), stored.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(body)))
	}
	if err := write(`{"metadata":{"labels":{"team":"a"}}}`); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := write(`{"suspend":true}`); err != nil {
		t.Errorf("suspending it: %v", err)
	}
	if err := write(`{"inference":{"template":{"spec":{"serviceAccountName":"other"}}}}`); err == nil {
		t.Error("a change of the template is not refused")
	}
	status := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"targetNodeCount":1}}`))
	if err := api.Status().Patch(t.Context(), stored.DeepCopy(), status); err != nil {
		t.Errorf("a status: %v", err)
	}
	if err := api.Delete(t.Context(), stored.DeepCopy()); err != nil {
		t.Errorf("deleting it: %v", err)
	}
	if err := write(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("removing the finalizer: %v", err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}
