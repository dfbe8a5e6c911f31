// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/upgrade"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/privileges"
)

// baseCommit is the base of upgrades: 24 November 2026, before the cost ledger, calibration by ConfigMap and
// status.observedGeneration of -1. docs/releases.md says when to move it.
const baseCommit = "bf5f6dae75686e324c97310908b4e74b2a4c5637"

const root = "../../.."

// base is the version before, built from its commit.
type base struct{ dir, controller string }

// rules is the directory of its CustomResourceDefinitions and policies.
func (b base) rules() string { return filepath.Join(b.dir, "charts/modelberth/files") }

// buildBase builds the base once for a machine. A clone without the commit skips the test.
func buildBase(t *testing.T) base {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", baseCommit+"^{commit}").Run(); err != nil {
		t.Skipf("this clone lacks the base %s: fetch the whole history", baseCommit[:8])
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if named := os.Getenv("MODELBERTH_CACHE"); named != "" {
		cache = named
	} else {
		cache = filepath.Join(cache, "modelberth")
	}
	out := base{dir: filepath.Join(cache, "base", baseCommit[:12])}
	out.controller = filepath.Join(out.dir, "modelberth-controller")
	if _, err := os.Stat(out.controller); err == nil {
		return out
	}
	if err := os.MkdirAll(filepath.Dir(out.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	//nolint:usetesting // it is renamed, so it must be on the same file system
	unpacked, err := os.MkdirTemp(filepath.Dir(out.dir), "new-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(unpacked) })
	const script = `git -C "$1" archive "$2" go.mod go.sum api cmd pkg presets examples charts | tar -x -C "$3" &&
cd "$3" && CGO_ENABLED=0 go build -buildvcs=false -o modelberth-controller ./cmd/modelberth-controller`
	if text, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", script, "-", root, baseCommit, unpacked).CombinedOutput(); err != nil {
		t.Fatalf("building the base: %v\n%s", err, text)
	}
	if err := os.Rename(unpacked, out.dir); err != nil && !os.IsExist(err) { // another run may have been first
		t.Fatal(err)
	}
	return out
}

// begin runs the base's controller, and returns how to end it.
func (b base) begin(t *testing.T, kubeconfig string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, b.controller,
		"--agent-image=registry.example/agent:base", "--hub-endpoint=http://hub.example", "--node-class=karpenter.azure.com/AKSNodeClass/default",
		"--catalog-overlay="+filepath.Join(b.dir, "examples/local-catalog"), "--multi-node=Allow", "--capacity-backend=nodeclaim",
		"--gpu-plugin-check=false", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--workers=4")
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = patience
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		_ = command.Wait() // it does not expect an interrupt
		if t.Failed() {
			t.Logf("the base's controller said:\n%s", &log)
		}
	}
	t.Cleanup(end)
	return end
}

// TestUpgradeAndDowngrade runs the base, this version, and the base again over the same objects. Nobody edits them, so no
// pod, machine or plan changes. This version writes the base's missing marks of attempts that have answered, once each, and
// the second run of the base writes nothing.
func TestUpgradeAndDowngrade(t *testing.T) {
	former := buildBase(t)
	const baseUser = "base"
	w := enterAudited(t, func(environment *envtest.Environment) {
		environment.CRDDirectoryPaths = []string{filepath.Join(former.rules(), "crds")}
	})
	w.setRules(t, former.rules())
	kubeconfig := w.kubeconfig(t, baseUser)
	end := former.begin(t, kubeconfig)
	namespace := w.namespace(t)
	chat, paused := plannerForm(namespace, "chat"), plannerForm(namespace, "paused")
	paused.Suspend = true
	set := setForm(namespace, "fleet", 2)
	w.create(t, chat)
	w.create(t, paused)
	w.createSet(t, set)
	w.untilCondition(t, chat, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.untilCondition(t, paused, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
	members := w.untilServed(t, namespace, 3)
	w.untilQuiet(t, baseUser)
	end()
	before := w.held(t, namespace)

	w.setRules(t, filepath.Join(root, "charts/modelberth/files"))
	life := w.begin(t, faults.NewRecorder())
	for _, ws := range append(members, paused) {
		w.passes(t, life, ws, 2)
	}
	if diff := cmp.Diff(before, w.held(t, namespace)); diff != "" {
		t.Errorf("the upgrade changed what the base left (-base +this version):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Repeat([]string{"patch status of *v1beta1.Workspace"}, len(members)), life.accepted()); diff != "" {
		t.Errorf("the upgrade wrote more or less than the marks (-want +got):\n%s", diff)
	}
	for _, ws := range members {
		w.read(t, ws)
		if ws.Status.Attempts[0].AnsweredTime == nil {
			t.Errorf("the upgrade has not marked that %s has answered", ws.Name)
		}
	}
	newer := plannerForm(namespace, "newer")
	w.create(t, newer)
	w.untilCondition(t, newer, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.passes(t, life, newer, 2)
	life.end(t)
	upgraded := w.held(t, namespace)

	w.setRules(t, former.rules())
	begun := len(w.writesOf(t, baseUser, ""))
	if begun == 0 || len(upgraded.Templates) != 4 || len(upgraded.Machines) < 4 {
		t.Fatalf("the story is not what this test thinks: the base wrote %d times, and there are %v", begun, upgraded.Machines)
	}
	former.begin(t, kubeconfig)
	probe := plannerForm(w.namespace(t), "probe")
	probe.Suspend = true
	w.create(t, probe)
	w.untilCondition(t, probe, v1beta1.ConditionPlanned, metav1.ConditionTrue, "") // the others came first
	w.untilQuiet(t, baseUser)
	if diff := cmp.Diff(upgraded, w.held(t, namespace)); diff != "" {
		t.Errorf("the downgrade changed what this version left (-this version +base):\n%s", diff)
	}
	for _, write := range w.writesOf(t, baseUser, "")[begun:] {
		if !strings.Contains(write, probe.Namespace) {
			t.Errorf("the downgrade wrote: %s", write)
		}
	}
}

// setRules gives the API server the CustomResourceDefinitions and policies of a chart.
func (w *world) setRules(t *testing.T, dir string) {
	t.Helper()
	var objects []unstructured.Unstructured
	for _, part := range []string{"crds", "policies"} {
		read, err := upgrade.Objects(os.DirFS(filepath.Join(dir, part)))
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, read...)
	}
	for i := range objects {
		object := &objects[i]
		existing := &unstructured.Unstructured{}
		existing.SetGroupVersionKind(object.GroupVersionKind())
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(object), existing)
		switch {
		case apierrors.IsNotFound(err):
			err = w.client.Create(t.Context(), object)
		case err == nil:
			object.SetResourceVersion(existing.GetResourceVersion())
			err = w.client.Update(t.Context(), object)
		}
		if err != nil {
			t.Fatalf("installing %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// heldObjects are the objects of a namespace by their names, as far as an upgrade must not change them.
type heldObjects struct {
	// Specs of Workspaces and sets, with their pinned plans.
	Specs map[string]string
	// Templates of StatefulSets, with their generations.
	Templates map[string]string
	// Pods, Services, ControllerRevisions and NodeClaims have the UIDs of the created objects.
	Pods, Services, Revisions, Machines map[string]string
}

func (w *world) held(t *testing.T, namespace string) heldObjects {
	t.Helper()
	out := heldObjects{
		Specs: map[string]string{}, Templates: map[string]string{}, Pods: w.uidsOf(t, &corev1.PodList{}, namespace),
		Services: w.uidsOf(t, &corev1.ServiceList{}, namespace), Revisions: w.uidsOf(t, &appsv1.ControllerRevisionList{}, namespace),
		Machines: w.uidsOf(t, &karpv1.NodeClaimList{}, ""),
	}
	text := func(values ...any) string {
		data, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	workspaces, sets, statefulSets := &v1beta1.WorkspaceList{}, &v1beta1.InferenceSetList{}, &appsv1.StatefulSetList{}
	for _, list := range []client.ObjectList{workspaces, sets, statefulSets} {
		if err := w.client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range workspaces.Items {
		ws := &workspaces.Items[i]
		for j := range ws.Status.Attempts {
			ws.Status.Attempts[j].AnsweredTime = nil // the base has no such field
		}
		out.Specs["Workspace "+ws.Name] = text(ws.Resource, ws.Inference, ws.Suspend, ws.Labels, ws.Status)
	}
	for i := range sets.Items {
		out.Specs["InferenceSet "+sets.Items[i].Name] = text(sets.Items[i].Spec, sets.Items[i].Status)
	}
	for i := range statefulSets.Items {
		of := &statefulSets.Items[i]
		out.Templates[of.Name] = text(of.Generation, of.Spec.Template)
	}
	return out
}

// uidsOf returns the UIDs of objects by their names.
func (w *world) uidsOf(t *testing.T, list client.ObjectList, namespace string) map[string]string {
	t.Helper()
	if err := w.client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Items []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range read.Items {
		out[read.Items[i].Name] = string(read.Items[i].UID)
	}
	return out
}

// untilServed waits until so many Workspaces of a namespace are Ready, and returns them.
func (w *world) untilServed(t *testing.T, namespace string, count int) []*v1beta1.Workspace {
	t.Helper()
	var out []*v1beta1.Workspace
	eventually(t, "Workspaces are Ready", func() (bool, string) {
		list := &v1beta1.WorkspaceList{}
		if err := w.client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			return false, err.Error()
		}
		out = nil
		for i := range list.Items {
			for _, condition := range list.Items[i].Status.Conditions {
				if condition.Type == v1beta1.ConditionReady && condition.Status == metav1.ConditionTrue {
					out = append(out, &list.Items[i])
				}
			}
		}
		return len(out) == count, ""
	})
	return out
}

// writesOf are the successful writes of a user that name an object of a namespace, in words; empty means all.
func (w *world) writesOf(t *testing.T, user, namespace string) []string {
	t.Helper()
	requests, err := privileges.Read(w.auditLog, user)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, request := range requests {
		at := request.ObjectRef
		if request.IsWrite() && (namespace == "" || at.Namespace == namespace) {
			out = append(out, request.Privilege()+" "+at.Namespace+"/"+at.Name)
		}
	}
	return out
}

// untilQuiet waits until a user has written nothing for three seconds: a controller without work.
func (w *world) untilQuiet(t *testing.T, user string) {
	t.Helper()
	count, since := -1, time.Now()
	eventually(t, user+" is quiet", func() (bool, string) {
		writes := w.writesOf(t, user, "")
		if len(writes) != count {
			count, since = len(writes), time.Now()
		}
		return time.Since(since) > 3*time.Second, strings.Join(writes, "\n")
	})
}
