// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parity compares the command line's output without a cluster with a controller's revisions, for random
// Workspaces, settings and catalogues.
package parity

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/controllers/workspace"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/acquisition"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/workload"
)

var (
	runs = flag.Int("runs", 200, "number of cases")
	from = flag.Uint64("from", 0, "seed of the first case")
)

// outcome is a plan and its pods, or why there are none.
type outcome struct {
	Plan, Objects, Problem string
}

// TestCommandLinePlansAsTheController compares both, byte for byte.
func TestCommandLinePlansAsTheController(t *testing.T) {
	log.SetLogger(logr.Discard())
	shelves, planned, onNodes, groups, measured := catalogues(t), 0, 0, 0, 0
	for seed := *from; seed < *from+uint64(*runs); seed++ {
		c := draw(rand.New(rand.NewPCG(seed, 0)), shelves)
		want, plan := c.byController(t)
		got := c.byCommandLine(t, want.Problem)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: controller (-), command line (+), %s:\n%s", seed, strings.Join(c.flags(), " "), diff)
		}
		if plan == nil {
			continue
		}
		planned++
		if len(plan.NodeNames) > 0 {
			onNodes++
		}
		if plan.Nodes > 1 {
			groups++
		}
		if plan.Performance != nil && plan.Performance.Basis == v1beta1.BasisMeasured {
			measured++
		}
	}
	t.Logf("%d of %d cases have a plan, %d use existing nodes, %d several machines, %d are measured", planned, *runs, onNodes, groups, measured)
	if *runs >= 200 && (planned < *runs/4 || onNodes == 0 || groups == 0 || measured < *runs/50) {
		t.Error("too few cases have a plan, use existing nodes, use several machines, or are measured")
	}
}

// byController returns what a controller pins for a suspended Workspace: its plan is made, and nothing is bought.
func (c *testCase) byController(t *testing.T) (outcome, *planner.Plan) {
	t.Helper()
	scheme, err := app.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	ws := c.workspace.DeepCopy()
	ws.Suspend = true
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(c.objects(), ws)...).WithStatusSubresource(ws).Build()
	reconciler := workspace.New(workspace.Config{
		Client: kube, Live: kube, Catalog: c.shelf.catalog, Planner: c.controllersPlanner(t), Render: c.render,
		Provisioner: noMachines{}, Memory: &cooldown.Memory{}, Events: record.NewFakeRecorder(100), Uses: c,
		Clock: testclock.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
	})
	for range 2 { // the first pass sets the finalizer
		if _, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ws)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
		t.Fatal(err)
	}
	history, err := revision.NewStore(kube, kube).List(t.Context(), ws)
	if err != nil {
		t.Fatal(err)
	}
	pinned := history.Newest()
	if pinned == nil {
		condition := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionPlanned)
		if condition == nil || condition.Message == "" {
			t.Fatalf("neither a plan nor a reason: %+v", ws.Status)
		}
		return outcome{Problem: condition.Message}, nil
	}
	ws.Suspend = false
	objects := append(pinned.Network(ws, c.render.Workload, nil), pinned.Pods(ws, "", workload.GroupOf(nil))...)
	return outcome{Plan: text(t, request.Status(&pinned.Plan, "")), Objects: applied(t, objects)}, &pinned.Plan
}

// byCommandLine returns the command line's output for a manifest. Its messages have another beginning, so a problem
// counts as equal if it ends in the controller's.
func (c *testCase) byCommandLine(t *testing.T, problem string) outcome {
	t.Helper()
	manifest := c.manifest(t)
	run := func(flags []string, args ...string) (string, error) {
		var out, failure bytes.Buffer
		code := cli.Main(t.Context(), append(args, flags...), cli.World{
			In: strings.NewReader(manifest), Out: &out, Err: &failure, Getenv: func(string) string { return "" },
			Presets: c.shelf.files,
		})
		if code != 0 {
			return "", fmt.Errorf("%s", strings.TrimSpace(failure.String()))
		}
		return out.String(), nil
	}
	objects, err := run(append(c.flags(), c.renderFlags()...), "render", "-f", "-", "-o", "json")
	if err != nil {
		if said := err.Error(); problem == "" || !strings.HasSuffix(said, strings.Join(strings.Fields(problem), " ")) {
			return outcome{Problem: said}
		}
		return outcome{Problem: problem}
	}
	plan, err := run(c.flags(), "plan", "-f", "-", "-o", "json")
	if err != nil {
		return outcome{Problem: err.Error()}
	}
	return outcome{Plan: same(t, plan), Objects: same(t, objects)}
}

// applied are objects as the command line prints them.
func applied(t *testing.T, objects []render.Object) string {
	t.Helper()
	list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for _, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		delete(fields, "status")
		list.Items = append(list.Items, runtime.RawExtension{Raw: []byte(text(t, fields))})
	}
	return text(t, list)
}

// text is a value's JSON.
func text(t *testing.T, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return same(t, string(out))
}

// same indents JSON in one way. It changes no value and no order.
func same(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(strings.TrimSpace(text)), "", " "); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// noMachines is a provisioner that has none. Whatever else is asked of it is a nil dereference.
type noMachines struct{ acquisition.Provisioner }

func (noMachines) Kind(capacity.Owner) string { return "NodeClaim" }

func (noMachines) Observe(context.Context, capacity.Owner, []capacity.Created, string) ([]capacity.Machine, error) {
	return nil, nil
}

func (noMachines) Held(context.Context, capacity.Owner, []capacity.Created) ([]capacity.Machine, error) {
	return nil, nil
}

func (noMachines) Owners(context.Context, string, string) ([]capacity.Owner, error) { return nil, nil }

func (noMachines) MachineCosts(context.Context) ([]capacity.MachineCost, error) { return nil, nil }

// Of implements planning.Uses: no pod requests anything.
func (c *testCase) Of([]string) ([]existing.Use, bool) { return nil, true }
