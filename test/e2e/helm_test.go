// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/settings"
)

// TestHelm upgrades the release, rolls it back, uninstalls it and installs it under another name, while a model answers.
// The model's pod and machine stay throughout, and no request fails.
func TestHelm(t *testing.T) {
	ns := namespace(t)
	kubectl(t, "apply", "--namespace="+ns, "--filename="+example("demo.yaml"))
	ws := waitReady(t, ns, "demo")
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(helm(t, "get", "values", release, "--output=yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // also when the test ends half-way: the other tests need the controller
		if t.Failed() {
			_, _ = execute(context.Background(), local.helm, "uninstall", release, "--wait", "--timeout=2m", "--namespace="+systemNamespace)
			helm(t, "upgrade", release, chartDir, "--install", "--values="+values, "--wait", "--timeout=2m")
		}
	})
	install := func(args ...string) {
		helm(t, append([]string{"upgrade", release, chartDir, "--install", "--values=" + values, "--wait", "--timeout=2m"}, args...)...)
	}
	before, plan := containersOf(t, ws), ws.Status.Plan.Revision
	load := enterService(t, ws).startClients(t, 2, loadPause, 10)
	load.waitAnswers(t)
	start := time.Now()
	step := func(name string, run func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			run(t)
			elapsed(t, name, begin)
			if diff := cmp.Diff(before, containersOf(t, ws)); diff != "" {
				t.Errorf("the model's containers changed (-before +after):\n%s", diff)
			}
			if now := waitReady(t, ns, ws.Name); now.Status.Plan.Revision != plan || now.UID != ws.UID {
				t.Errorf("the plan changed from %s to %s", plan, now.Status.Plan.Revision)
			}
		})
	}
	step("helm upgrade with settings restarts nothing", func(t *testing.T) { expectLiveSettings(t) })
	step("helm upgrade with another value replaces the controller", func(t *testing.T) {
		old := controllers(t)
		install("--set=workers=16")
		if now := controllers(t); slices.ContainsFunc(now, func(name string) bool { return slices.Contains(old, name) }) {
			t.Errorf("pods %v run, want others than %v", now, old)
		}
		expectServes(t, ws)
	})
	step("helm rollback", func(t *testing.T) {
		helm(t, "rollback", release, "--wait", "--timeout=2m")
		expectServes(t, ws)
	})
	step("a label of the selector cannot change", func(t *testing.T) {
		_, err := execute(t.Context(), local.helm, "upgrade", release, chartDir, "--reuse-values", "--set=nameOverride=workspace", "--namespace="+systemNamespace)
		if err == nil || !strings.Contains(err.Error(), "field is immutable") {
			t.Errorf("helm upgrade with another nameOverride: got %v, want a refusal", err)
		}
		helm(t, "rollback", release, "--wait", "--timeout=2m")
		expectServes(t, ws)
	})
	step("helm uninstall", func(t *testing.T) { helm(t, "uninstall", release, "--wait", "--timeout=2m") })
	step("helm install with another name", func(t *testing.T) {
		install("--set=nameOverride=workspace")
		kubectl(t, "get", "pods", "--namespace="+systemNamespace, "--selector=app.kubernetes.io/name=workspace", "--output=name")
		expectServes(t, ws)
		helm(t, "uninstall", release, "--wait", "--timeout=2m")
		install()
		expectServes(t, ws)
	})
	elapsed(t, "all changes of the release", start)
	load.waitAnswers(t)
	all := load.stop()
	for _, o := range all {
		if o.err != "" {
			t.Errorf("a request at %s failed: %s", o.began.Format(time.TimeOnly), o.err)
		}
	}
	t.Logf("%d requests", len(all))
	expectMachine(t, ws, ws.Status.Plan.InstanceType, nil)
	expectAnswers(t, ws, tinyModel)
}

// expectLiveSettings changes limits by the chart, and refuses a mistake in a manual edit. The controller's pods stay.
func expectLiveSettings(t *testing.T) {
	old := controllers(t)
	helm(t, "upgrade", release, chartDir, "--reuse-values", "--set=spending.cluster=700", "--wait", "--timeout=2m")
	waitSettings(t, settings.ReasonChanged, `spending-cluster from "600" to "700"`)
	const name = "modelberth-settings"
	kubectl(t, "patch", "configmap", name, "--namespace="+systemNamespace, "--type=merge", `--patch={"data": {"spending-cluster": "seven"}}`)
	waitSettings(t, settings.ReasonRefused, `spending-cluster is "seven"`)
	kubectl(t, "patch", "configmap", name, "--namespace="+systemNamespace, "--type=merge", `--patch={"data": {"spending-cluster": "800"}}`)
	waitSettings(t, settings.ReasonChanged, `spending-cluster from "700" to "800"`)
	if diff := cmp.Diff(old, controllers(t)); diff != "" {
		t.Errorf("the controller's pods (-before +after):\n%s", diff)
	}
}

// waitSettings waits for an event about the settings.
func waitSettings(t *testing.T, reason, text string) {
	t.Helper()
	waitFor(t, "the event "+reason+" with "+text, seenTimeout, func(ctx context.Context) (bool, error) {
		events := &corev1.EventList{}
		err := local.client.List(ctx, events, client.InNamespace(systemNamespace))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == reason && e.InvolvedObject.Kind == "ConfigMap" && strings.Contains(e.Message, text)
		}), err
	})
}

// expectServes makes the controller plan another Workspace, which buys nothing.
func expectServes(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	kubectl(t, "apply", "--namespace="+ws.Namespace, "--filename="+example("suspended.yaml"))
	kubectl(t, "wait", "--for=condition=Planned", "workspace/planned", "--namespace="+ws.Namespace, "--timeout=30s")
	kubectl(t, "delete", "workspace", "planned", "--namespace="+ws.Namespace, "--timeout=30s")
}

// controllers returns the names of the controller's pods that are not being deleted, sorted.
func controllers(t *testing.T) []string {
	t.Helper()
	pods := &corev1.PodList{}
	if err := local.client.List(t.Context(), pods, client.InNamespace(systemNamespace), client.MatchingLabels{"app.kubernetes.io/instance": release}); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp.IsZero() {
			out = append(out, pods.Items[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

// containersOf returns the containers of a Workspace's first pod, with their numbers of restarts.
func containersOf(t *testing.T, ws *v1beta1.Workspace) []string {
	t.Helper()
	pod := &corev1.Pod{}
	if err := local.client.Get(t.Context(), memberOf(ws, 0), pod); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		out = append(out, fmt.Sprintf("%s %s restarted %d", pod.UID, status.ContainerID, status.RestartCount))
	}
	return out
}
