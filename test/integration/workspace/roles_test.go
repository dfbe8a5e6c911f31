// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/modelberth/modelberth/test/privileges"
)

// enterAudited is enter for a test of the controller's rights: its world has an audit log. As in some distributions,
// its API server checks the right to block an owner's deletion.
func enterAudited(t *testing.T, configure ...func(*envtest.Environment)) *world {
	t.Helper()
	t.Parallel()
	if os.Getenv("HELM") == "" {
		t.Fatal("HELM is not set: run these tests with `make test-integration`")
	}
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(privileges.Policy), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(append(configure, func(environment *envtest.Environment) {
		environment.ControlPlane.GetAPIServer().Configure().
			Set("audit-policy-file", policy).Set("audit-log-path", log).
			Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	})...)
	if err != nil {
		t.Fatalf("making a world: %v", err)
	}
	w.auditLog = log
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Errorf("ending a world: %v", err)
		}
	})
	return w
}

// account is the controller's, in an installation of the chart.
type account struct {
	// world is the account's world, through the account's clients.
	*world
	namespace, user string
	granted         privileges.Granted
}

// install makes the account of a release, with the roles of the chart and nothing else.
func (w *world) install(t *testing.T, release string, values ...string) *account {
	t.Helper()
	a := &account{namespace: release, granted: privileges.Granted{}}
	a.user = "system:serviceaccount:" + a.namespace + ":" + release
	objects := rolesOf(t, release, a.namespace, values...)
	objects = append([]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}}, objects...)
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			a.granted.Add("", role.Rules)
		case *rbacv1.Role:
			a.granted.Add(role.Namespace, role.Rules)
		}
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + a.namespace}
	user, err := w.environment.AddUser(envtest.User{Name: a.user, Groups: groups}, w.config)
	if err != nil {
		t.Fatal(err)
	}
	seen := *w
	seen.config = rest.CopyConfig(user.Config())
	a.world = &seen
	return a
}

// rolesOf renders the chart's roles.
func rolesOf(t *testing.T, release, namespace string, values ...string) []client.Object {
	t.Helper()
	args := []string{
		"template", release, "../../../charts/modelberth", "--namespace=" + namespace, "--kube-version=1.35.4",
		"--show-only=templates/rbac.yaml", "--set=fullnameOverride=" + release, "--set=clouds={azure},image.repository=a,agentImage.repository=b",
	}
	for _, value := range values {
		args = append(args, "--set="+value)
	}
	command := exec.CommandContext(t.Context(), os.Getenv("HELM"), args...)
	var complaints strings.Builder
	command.Stderr = &complaints
	rendered, err := command.Output()
	if err != nil {
		t.Fatalf("rendering the chart: %v: %s", err, &complaints)
	}
	var out []client.Object
	for document := range strings.SplitSeq(string(rendered), "\n---\n") {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("reading what was rendered: %v in:\n%s", err, document)
		}
		object, ok := decoded.(client.Object)
		if !ok {
			t.Fatalf("%T is no object", decoded)
		}
		out = append(out, object)
	}
	return out
}

// requests returns the account's requests.
func (a *account) requests(t *testing.T) []privileges.Request {
	t.Helper()
	requests, err := privileges.Read(a.auditLog, a.user)
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// checkPrivileges compares the account's rights with its requests.
func (a *account) checkPrivileges(t *testing.T, rare privileges.Rare) {
	t.Helper()
	for _, problem := range privileges.Compare(a.granted, a.requests(t), rare) {
		t.Error(problem)
	}
}
