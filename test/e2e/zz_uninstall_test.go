// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/ends"
)

// TestUninstall looks back at what the release needed, takes it away under a Workspace, and installs
// it again. Its file is the last in the order of names, so this runs last.
func TestUninstall(t *testing.T) {
	if selected := flag.Lookup("test.run").Value.String(); selected == "" || selected == "." {
		t.Run("privileges", expectPrivileges)
	} else {
		t.Logf("privileges are not compared, because only the tests matching %q have made use of them", selected)
	}
	t.Run("restarts", expectNoFailures)
	ns := namespace(t)
	kubectl(t, "apply", "--namespace="+ns, "--filename="+example("suspended.yaml"))
	kubectl(t, "wait", "--for=condition=Planned", "workspace/planned", "--namespace="+ns, "--timeout=30s")
	before := workspace(t, ns, "planned")

	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(helm(t, "get", "values", release, "--output=yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // also when the test ends half-way: the other tests need the controller
		if t.Failed() {
			helm(t, "upgrade", release, chartDir, "--install", "--values="+values, "--wait", "--timeout=2m")
		}
	})
	helm(t, "uninstall", release, "--wait", "--timeout=2m")
	kubectl(t, "get", "customresourcedefinition", "workspaces.kaito.sh")
	if after := workspace(t, ns, "planned"); after.UID != before.UID || after.DeletionTimestamp != nil {
		t.Fatal("the Workspace did not outlive the release")
	}
	helm(t, "upgrade", release, chartDir, "--install", "--values="+values, "--wait", "--timeout=2m")
	// A change shows that the new installation has taken it over.
	kubectl(t, "annotate", "workspace", "planned", "--namespace="+ns, "kaito.sh/performance-mode=throughput")
	waitFor(t, "the new installation to look at the Workspace", seenTimeout, func(ctx context.Context) (bool, error) {
		ws := &v1beta1.Workspace{}
		err := local.client.Get(ctx, types.NamespacedName{Namespace: ns, Name: "planned"}, ws)
		return err == nil && ws.Status.Plan != nil && ws.Status.Plan.Revision != before.Status.Plan.Revision, err
	})
}

// expectNoFailures fails if a pod of the release has ended by itself. Other tests kill such pods, or take the API server
// from a leader until it loses its Lease.
func expectNoFailures(t *testing.T) {
	pods := &corev1.PodList{}
	if err := local.client.List(t.Context(), pods, client.InNamespace(systemNamespace)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Fatalf("no pods in namespace %s", systemNamespace)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for i := range pod.Status.ContainerStatuses {
			container := &pod.Status.ContainerStatuses[i]
			ended := ends.Failure(container)
			if ended == nil {
				continue
			}
			args := []string{"logs", pod.Name, "--container=" + container.Name, "--namespace=" + systemNamespace, "--tail=20"}
			if ended != container.State.Terminated {
				args = append(args, "--previous")
			}
			if last := kubectl(t, args...); !ends.IsExcused(ended, last) {
				t.Errorf("container %s of pod %s has ended with code %d (%s) and restarted %d times:\n%s",
					container.Name, pod.Name, ended.ExitCode, ended.Reason, container.RestartCount, last)
			}
		}
	}
}

// helm runs helm in the release's namespace and returns what it prints.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout+commandTimeout)
	defer cancel()
	out, err := execute(ctx, local.helm, append(args, "--namespace="+systemNamespace)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
