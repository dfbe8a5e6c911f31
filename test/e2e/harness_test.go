// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Deadlines on two busy cores; what is usual is a fraction of them.
const (
	// readyTimeout bounds the way from a manifest to an answer.
	readyTimeout = 4 * time.Minute
	// goneTimeout bounds a deletion with its machines.
	goneTimeout = 2 * time.Minute
	// seenTimeout bounds what the controller does on its own.
	seenTimeout = 30 * time.Second
	// commandTimeout bounds a command that does not wait for anything.
	commandTimeout = time.Minute
)

// execute runs a command and returns its stdout; the error carries its stderr.
func execute(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(command.Environ(), "KUBECONFIG="+local.kubeconfig)
	command.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// kubectl runs kubectl as a user would and fails the test if it fails.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), max(readyTimeout, goneTimeout)+commandTimeout)
	defer cancel()
	out, err := execute(ctx, local.kubectl, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// example is the path of a manifest that users are shown.
func example(name string) string { return filepath.Join(examplesDir, name) }

// apply applies a manifest that no user is shown.
func apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--namespace="+namespace, "--filename="+file)
}

// namespace makes a namespace for one test, with Pod Security's level restricted. At the end of the test, its
// InferenceSets and Workspaces are deleted, and that must release every machine.
func namespace(t *testing.T) string {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := local.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			dump(t, object.Name)
		}
		ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
		defer cancel()
		if _, err := execute(ctx, local.kubectl, "delete", "inferencesets,workspaces", "--all", "--namespace="+object.Name, "--wait"); err != nil {
			t.Errorf("cleaning up: %v", err)
			dump(t, object.Name)
		}
		if err := local.client.Delete(ctx, object); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return object.Name
}

// workspace reads a Workspace.
func workspace(t *testing.T, namespace, name string) *v1beta1.Workspace {
	t.Helper()
	ws := &v1beta1.Workspace{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, ws); err != nil {
		t.Fatal(err)
	}
	return ws
}

// waitFor polls until the answer is yes; the question names what it waits for.
func waitFor(t *testing.T, what string, timeout time.Duration, ask func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := poll(ctx, ask); err != nil {
		t.Fatalf("waited %s for %s: %v", timeout, what, err)
	}
}

// waitReady waits as users wait, and returns the Workspace.
func waitReady(t *testing.T, namespace, name string) *v1beta1.Workspace {
	t.Helper()
	kubectl(t, "wait", "--for=condition=Ready", "workspace/"+name, "--namespace="+namespace, "--timeout="+readyTimeout.String())
	return workspace(t, namespace, name)
}

// waitCondition waits for a condition that is not true for the given reason, and returns it.
func waitCondition(t *testing.T, key types.NamespacedName, kind, reason string, timeout time.Duration) metav1.Condition {
	t.Helper()
	var last *metav1.Condition
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		ws := &v1beta1.Workspace{}
		if err := local.client.Get(ctx, key, ws); err != nil {
			return false, err
		}
		last = meta.FindStatusCondition(ws.Status.Conditions, kind)
		return last != nil && last.Status != metav1.ConditionTrue && last.Reason == reason, nil
	})
	if err != nil {
		t.Fatalf("waited %s for condition %s of %s to be false for the reason %s: %v; it is %+v", timeout, kind, key.Name, reason, err, last)
	}
	return *last
}

// waitGone waits until an object does not exist.
func waitGone(t *testing.T, object client.Object) {
	t.Helper()
	what := fmt.Sprintf("%T %s to be gone", object, object.GetName())
	waitFor(t, what, seenTimeout, func(ctx context.Context) (bool, error) {
		err := local.client.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// claimsOf are the machines of a Workspace.
func claimsOf(ctx context.Context, uid types.UID) ([]string, error) {
	claims, err := nodeClaims(ctx, local.client)
	var names []string
	for i := range claims {
		if claims[i].GetLabels()[v1beta1.LabelWorkspaceUID] == string(uid) {
			names = append(names, claims[i].GetName())
		}
	}
	return names, err
}

// dump logs what a person would look at first.
func dump(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	show := func(args ...string) {
		out, err := execute(ctx, local.kubectl, args...)
		if err != nil {
			out += err.Error()
		}
		t.Logf("$ kubectl %s\n%s", strings.Join(args, " "), out)
	}
	show("get", "workspaces", "--namespace="+namespace, "--output=yaml")
	show("get", "nodeclaims,nodes", "--output=wide", "--show-labels")
	show("get", "nodeclaims", "--output=jsonpath={range .items[*]}{.metadata.name}{\" \"}{.status.conditions}{\"\\n\"}{end}")
	show("get", "pods,statefulsets,services", "--namespace="+namespace, "--output=wide")
	show("describe", "pods", "--namespace="+namespace)
	show("get", "events", "--namespace="+namespace, "--sort-by=.lastTimestamp")
	show("logs", "--namespace="+namespace, "--selector="+v1beta1.LabelWorkspace, "--all-containers", "--prefix", "--tail=20")
	show("get", "pods", "--namespace="+systemNamespace, "--output=wide")
	show("logs", "--namespace="+systemNamespace, "--selector=app.kubernetes.io/name=modelberth", "--prefix", "--tail=40")
	show("logs", "--namespace="+systemNamespace, "--selector=app.kubernetes.io/name="+routerName, "--prefix", "--tail=1000")
}
