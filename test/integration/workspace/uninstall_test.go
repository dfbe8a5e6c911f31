// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/modelberth/modelberth/pkg/takeover"
)

// likeKAITOs is a chart in the form of KAITO's: the definition of a kind, the webhook and the controller are templates.
var likeKAITOs = map[string]string{
	"Chart.yaml": "apiVersion: v2\nname: workspace\nversion: 0.12.0\n",
	"templates/crd.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.kaito.example}
spec:
  group: kaito.example
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`,
	"templates/webhook.yaml": `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validation.workspace.kaito.sh}
webhooks:
- name: validation.workspace.kaito.sh
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {namespace: default, name: kaito}}
  rules: [{apiGroups: [kaito.sh], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [workspaces, workspaces/status]}]
`,
	"templates/controller.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: kaito-workspace}
spec:
  selector: {matchLabels: {app: kaito}}
  template:
    metadata: {labels: {app: kaito}}
    spec: {containers: [{name: controller, image: "mcr.example/aks/kaito/workspace:0.12.0"}]}
`,
}

// shell runs command lines against an API server.
type shell struct{ kubeconfig string }

func (s shell) run(t *testing.T, line string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	command.Env = append(command.Environ(), "KUBECONFIG="+s.kubeconfig, "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(),
		"HELM_DATA_HOME="+t.TempDir(), "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+filepath.Dir(os.Getenv("HELM"))+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	return string(out), err
}

func (s shell) must(t *testing.T, line string) {
	t.Helper()
	if out, err := s.run(t, line); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

func (w *world) shell(t *testing.T) shell {
	t.Helper()
	user, err := w.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, w.config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return shell{path}
}

// TestPrintedCommandsRemoveKAITO runs the commands that adopt prints against a release of a chart like KAITO's. Helm can
// delete nothing of it afterwards. Without them, it deletes the definitions, and an annotation on them does not help.
func TestPrintedCommandsRemoveKAITO(t *testing.T) {
	if os.Getenv("HELM") == "" {
		t.Fatal("HELM is not set: run these tests with `make test-integration`")
	}
	w := enter(t)
	sh := w.shell(t)
	chart := t.TempDir()
	for name, text := range likeKAITOs {
		path := filepath.Join(chart, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	isDefined := func() bool {
		definition := &metav1.PartialObjectMetadata{}
		definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		err := w.client.Get(t.Context(), types.NamespacedName{Name: "things.kaito.example"}, definition)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return !apierrors.IsNotFound(err) && definition.DeletionTimestamp.IsZero()
	}
	t.Cleanup(func() { // a failure must not leave the webhook to the next test of this API server
		_ = w.client.Delete(context.Background(), &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "validation.workspace.kaito.sh"},
		})
	})
	sh.must(t, "helm install kaito "+chart)
	sh.must(t, "kubectl annotate crd things.kaito.example helm.sh/resource-policy=keep")
	sh.must(t, "helm uninstall kaito")
	if isDefined() {
		t.Error("an annotation on the live definition keeps Helm from deleting it: docs/coming-from-kaito.md says that it does not")
	}
	eventually(t, "the definition gone", func() (bool, string) { return !isDefined(), "" })

	sh.must(t, "helm install kaito "+chart)
	report := &takeover.Report{}
	if err := json.Unmarshal([]byte(w.berth(t, "", "adopt", "-A", "-o", "json")), report); err != nil {
		t.Fatal(err)
	}
	if len(report.Uninstall) < 4 {
		t.Fatalf("commands: %+v", report.Uninstall)
	}
	for _, step := range report.Uninstall {
		sh.must(t, step.Command)
	}
	if out, err := sh.run(t, "helm uninstall kaito"); err == nil || !strings.Contains(out, "not found") {
		t.Errorf("helm uninstall after the commands: error %v: %s", err, out)
	}
	if !isDefined() {
		t.Error("the definition is gone")
	}
	if after := w.berth(t, "", "adopt", "-A"); strings.Contains(after, "Obstacles to a takeover") {
		t.Errorf("still in the way:\n%s", after)
	}
	sh.must(t, "kubectl delete crd things.kaito.example")
}
