// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies tests the chart's guards, the admission policies of a release, in both directions, and its roles for
// metrics. It renders the chart and installs it into an API server without controllers.
package policies

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/app"
)

const (
	chartDir = "../../../charts/modelberth"
	settle   = 30 * time.Second
	// controller is the user that the chart's release modelberth in modelberth-system runs as.
	controller = "system:serviceaccount:modelberth-system:modelberth"
	// setController is the user that makes the pods of StatefulSets.
	setController = "system:serviceaccount:kube-system:statefulset-controller"
)

// api is the API server that the tests of this package share, as its administrator.
var api struct {
	client.Client
	config *rest.Config
}

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" || os.Getenv("HELM") == "" {
		if testing.Short() {
			fmt.Println("policies: left out: -short is set and KUBEBUILDER_ASSETS or HELM is not")
			return 0
		}
		fmt.Fprintln(os.Stderr, "policies: KUBEBUILDER_ASSETS and HELM must be set: run `make test-integration`")
		return 1
	}
	environment := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join(chartDir, "files", "crds")}, ErrorIfCRDPathMissing: true,
	}
	for _, crd := range karpapis.CRDs { // Installing writes to it
		environment.CRDs = append(environment.CRDs, crd.DeepCopy())
	}
	if err := start(environment); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", errors.Join(err, environment.Stop()))
		return 1
	}
	code := m.Run()
	if err := environment.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "policies: stopping the API server:", err)
		return 1
	}
	return code
}

func start(environment *envtest.Environment) error {
	config, err := environment.Start()
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	api.config = config
	if api.Client, err = as(""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*settle)
	defer cancel()
	for _, name := range []string{"team-a", "modelberth-system", "flux-system"} {
		if err := api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	return install(ctx)
}

// as returns a client of a user with all rights, so only the policies can refuse a write. A user with explicit groups
// is in no other group.
func as(user string, groups ...string) (client.Client, error) {
	scheme, err := app.Scheme()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(api.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// user is as, in a test.
func user(t *testing.T, name string, groups ...string) client.Client {
	t.Helper()
	c, err := as(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// install renders the guards and applies them, with roles that let every user do everything under the policies.
func install(ctx context.Context, values ...string) error {
	if err := bringIn(ctx, "guards.yaml", everybody, values...); err != nil {
		return err
	}
	return heeded(ctx)
}

// bringIn applies one of the chart's templates, with further manifests.
func bringIn(ctx context.Context, template, manifests string, values ...string) error {
	args := []string{
		"template", "modelberth", chartDir, "--namespace=modelberth-system", "--kube-version=1.35.4",
		"--show-only=templates/" + template, "--set=clouds={azure},image.repository=a,agentImage.repository=b",
		"--set=policies.protectedNamespaces={kube-system,flux-system}",
	}
	rendered, err := exec.CommandContext(ctx, os.Getenv("HELM"), append(args, values...)...).Output()
	if err != nil {
		return fmt.Errorf("rendering the chart: %w", err)
	}
	objects, err := parse(append([]byte(manifests+"\n---\n"), rendered...))
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := apply(ctx, object); err != nil {
			return fmt.Errorf("applying %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// everybody may write everything under the policies but NodeClaims, limits on spending and Bindings: only the policies refuse.
const everybody = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everybody}
rules:
- {apiGroups: [apps, kaito.sh, networking.k8s.io, policy], resources: ["*"], verbs: ["*"]}
- apiGroups: [""]
  resources:
  - configmaps
  - namespaces
  - namespaces/finalize
  - namespaces/status
  - nodes
  - nodes/status
  - pods
  - pods/status
  - services
  verbs: ["*"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: binder, namespace: team-a}
rules:
- {apiGroups: [""], resources: [pods/binding, bindings], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: binder, namespace: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: binder}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: binder}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everybody}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everybody}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: machines}
rules:
- {apiGroups: [karpenter.sh], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: machines}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: machines}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: karpenter}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:modelberth-system:modelberth"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: spending}
rules:
- {apiGroups: [modelberth.dev], resources: [spendinglimits], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: spending}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: spending}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: treasurer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: spending, namespace: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: owner}]
`

// heeded waits until the last applied policy is in effect.
func heeded(ctx context.Context) error {
	objects, err := parse([]byte(`
apiVersion: kaito.sh/v1beta1
kind: InferenceSet
metadata: {name: canary, namespace: team-a}
spec: {template: {inference: {preset: {name: m}, pod: {tolerations: [{key: modelberth.dev/workspace-uid, operator: Exists}]}}}}
`))
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
		err := api.Create(ctx, objects[0].DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "modelberth-allowed-sets"), nil
	})
	if err != nil {
		return fmt.Errorf("waiting until the policies are in effect: %w", err)
	}
	return nil
}

// apply creates an object or replaces it, as an upgrade of the chart does.
func apply(ctx context.Context, desired *unstructured.Unstructured) error {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(desired.GroupVersionKind())
	err := api.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	if apierrors.IsNotFound(err) {
		return api.Create(ctx, desired)
	}
	if err != nil {
		return err
	}
	desired.SetResourceVersion(existing.GetResourceVersion())
	return api.Update(ctx, desired)
}

func parse(manifests []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
}

func podOf(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
}
