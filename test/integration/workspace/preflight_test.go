// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/privileges"
)

// preflightReport is the part of the command's answer that the test compares.
type preflightReport struct {
	Objects  int
	Findings []struct{ Problem, Name, Rule, Message string }
	Plans    []struct {
		Name, Change, Message string
		Pinned                struct {
			Machines              string
			HourlyPrice, PriceNow float64
		}
		New struct {
			Machines    string
			HourlyPrice float64
		}
	}
	Notes []string
}

// changes are the plans' changes by the names of Workspaces.
func (r *preflightReport) changes() map[string]string {
	out := map[string]string{}
	for _, plan := range r.Plans {
		out[plan.Name] = plan.Change
	}
	return out
}

// TestPreflightUpgrade stores objects under an older schema and lists the effects of the upgrade on them and on the
// pinned plans. The audit log has no write of the command.
func TestPreflightUpgrade(t *testing.T) {
	w := enterAudited(t)
	const auditor = "preflight"
	kubeconfig := w.kubeconfig(t, auditor)
	life := w.begin(t, faults.NewRecorder())
	chat := plannerForm(w.namespace(t), "chat")
	w.create(t, chat)
	w.untilCondition(t, chat, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	life.end(t)
	w.installDeployment(t)
	settled := w.preflight(t, kubeconfig, 0)
	if diff := cmp.Diff(map[string]string{"chat": "none"}, settled.changes()); diff != "" {
		t.Errorf("plans under the rules and the catalogue that made them (-want +got):\n%s\n%+v", diff, settled)
	}
	if len(settled.Findings) > 0 || settled.Objects != 1 || len(settled.Notes) > 0 {
		t.Errorf("a settled installation: %+v", settled)
	}

	w.storeUnderOlderSchema(t, chat.Namespace)
	w.setOverlay(t, map[string]string{"overrides.yaml": "overrides:\n- {name: Standard_NC4as_T4_v3, prices: {eastus: 0.6}}\n"})
	dearer := w.preflight(t, kubeconfig, 1)
	if diff := cmp.Diff(map[string]string{"chat": "price"}, dearer.changes()); diff != "" {
		t.Errorf("plans after a change of the price (-want +got):\n%s", diff)
	}
	if got := dearer.Plans[0]; got.Pinned.HourlyPrice != 0.526 || got.Pinned.PriceNow != 0.6 || got.New.HourlyPrice != 0.6 {
		t.Errorf("prices before and after: %+v", got)
	}
	wantFindings := []struct{ Problem, Name, Rule, Message string }{
		{"FieldsLost", "1-older", "schema", "the new schema lacks former"},
		{"RefusedIfNew", "1-older", "modelberth-workspaces", `metadata.name "1-older" cannot be the name of a Service: ` +
			`use lower-case letters, digits and dashes, beginning with a letter and ending with a letter or digit`},
		{"RefusedIfNew", "1-older", "schema", "inference.adapters[0].source: Invalid value: inference.adapters[].source must be set: " +
			"a name, and an image, a volumeSource or a repository"},
	}
	if diff := cmp.Diff(wantFindings, dearer.Findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}

	w.setOverlay(t, map[string]string{"overrides.yaml": otherFacts})
	retired := w.preflight(t, kubeconfig, 1)
	if diff := cmp.Diff(map[string]string{"chat": "machines"}, retired.changes()); diff != "" {
		t.Errorf("plans after the machine type is gone (-want +got):\n%s", diff)
	}
	if got := retired.Plans[0].Message; !strings.Contains(got, "could not be bought again: ") || !strings.Contains(got, "retired") {
		t.Errorf("message of a plan with a retired machine: %q", got)
	}
	rendered := w.preflight(t, kubeconfig, 1, "-f", renderedChart(t))
	if diff := cmp.Diff(wantFindings, rendered.Findings); diff != "" {
		t.Errorf("findings under the rendered chart (-want +got):\n%s", diff)
	}
	w.wroteNothing(t, auditor)
}

// kubeconfig returns a file for an administrator whose requests are in the audit log.
func (w *world) kubeconfig(t *testing.T, name string) string {
	t.Helper()
	user, err := w.environment.AddUser(envtest.User{Name: name, Groups: []string{"system:masters", "system:serviceaccounts"}}, w.environment.Config)
	if err != nil {
		t.Fatal(err)
	}
	data, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// wroteNothing fails the test for each write of a user, and if the user sent nothing.
func (w *world) wroteNothing(t *testing.T, user string) {
	t.Helper()
	requests, err := privileges.Read(w.auditLog, user)
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) == 0 {
		t.Errorf("the audit log has no request of %s", user)
	}
	for _, request := range requests {
		if request.IsWrite() {
			t.Errorf("%s wrote: %s %s", user, request.Privilege(), request.ObjectRef.Name)
		}
	}
}

// preflight runs kubectl berth preflight-upgrade.
func (*world) preflight(t *testing.T, kubeconfig string, code int, args ...string) *preflightReport {
	t.Helper()
	process := cli.Process(os.Stdin, os.Stdout, os.Stderr, func(string) string { return "" }, options.Effective)
	var out, complaints bytes.Buffer
	process.Out, process.Err = &out, &complaints
	args = append([]string{"preflight-upgrade", "-o", "json", "--kubeconfig", kubeconfig}, args...)
	if got := cli.Main(t.Context(), args, process); got != code {
		t.Fatalf("exit code %d, want %d: %s%s", got, code, &out, &complaints)
	}
	report := &preflightReport{}
	if err := json.Unmarshal(out.Bytes(), report); err != nil {
		t.Fatal(err)
	}
	return report
}

// installDeployment stores the controller's Deployment, as the chart has it, and its catalogue.
func (w *world) installDeployment(t *testing.T) {
	t.Helper()
	namespace := w.namespace(t)
	labels := map[string]string{"app.kubernetes.io/name": "modelberth"}
	w.overlays = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "catalog"}}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	pod.Spec.Containers = []corev1.Container{{
		Name: "controller", Image: "registry.example/controller:base",
		Args: []string{
			"--agent-image=registry.example/agent:test", "--cloud=azure", "--node-class=karpenter.azure.com/AKSNodeClass/default",
			"--catalog-overlay=/etc/modelberth/catalog", "--spending-per-workspace=150",
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "catalog", MountPath: "/etc/modelberth/catalog"}},
	}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "catalog", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "catalog"}},
	}}}
	for _, object := range []client.Object{w.overlays, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "modelberth", Labels: labels},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod},
	}} {
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	w.setOverlay(t, nil)
}

// setOverlay gives the installed catalogue the files of the stories, and some in place of theirs.
func (w *world) setOverlay(t *testing.T, files map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(w.overlay)
	if err != nil {
		t.Fatal(err)
	}
	w.overlays.Data = map[string]string{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(w.overlay, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		w.overlays.Data[entry.Name()] = string(text)
	}
	maps.Copy(w.overlays.Data, files)
	if err := w.client.Update(t.Context(), w.overlays); err != nil {
		t.Fatal(err)
	}
}

// storeUnderOlderSchema stores a Workspace that only an older schema accepts: without rules, and with a field more.
func (w *world) storeUnderOlderSchema(t *testing.T, namespace string) {
	t.Helper()
	w.changeAPI(t.Context(), t, "workspaces.kaito.sh", func(definition *apiextensionsv1.CustomResourceDefinition) {
		for i := range definition.Spec.Versions {
			root := definition.Spec.Versions[i].Schema.OpenAPIV3Schema
			root.Properties["former"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
			inference := root.Properties["inference"]
			adapters := inference.Properties["adapters"]
			adapters.Items.Schema.XValidations = nil
			inference.Properties["adapters"] = adapters
			root.Properties["inference"] = inference
		}
	})
	older := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "former": "x",
		"metadata":  map[string]any{"name": "1-older", "namespace": namespace},
		"inference": map[string]any{"preset": map[string]any{"name": "tiny-chat"}, "adapters": []any{map[string]any{}}},
	}}
	eventually(t, "the older schema", func() (bool, string) {
		object := older.DeepCopy()
		err := w.client.Create(t.Context(), object)
		if err != nil {
			return false, err.Error()
		}
		if _, kept := object.Object["former"]; kept {
			return true, ""
		}
		if err := w.client.Delete(t.Context(), object); err != nil {
			return false, err.Error()
		}
		return false, "the field is pruned"
	})
}

// renderedChart returns a file with the whole chart.
func renderedChart(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Getenv("HELM"), "template", "modelberth", "../../../charts/modelberth",
		"--namespace=modelberth-system", "--kube-version=1.35.4", "--set=clouds={azure},image.repository=a,agentImage.repository=b")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("rendering the chart: %v", err)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
