// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
)

// loaded returns a ledger of the Workspace chat on four GPUs. It has some hours up to now, with output tokens in each.
func loaded(hours int, output int64) *cost.Ledger {
	l := cost.New()
	account := cost.Key{
		Namespace: "team-a", Workspace: "chat", InstanceType: "Standard_A24_4", CapacityType: "on-demand", Price: cost.MicroUSD(4), Source: "NodeClaim",
	}
	begin := noon.Add(time.Duration(-hours) * time.Hour)
	machine := cost.Machine{UID: "1", Key: account, Owned: true, Serving: true, Since: begin, LaunchedAt: begin}
	l.Observe(cost.Step{At: begin})
	l.Observe(cost.Step{At: begin, Machines: []cost.Machine{machine}})
	for i := range hours {
		l.Count(l.Seen, cost.Engine{
			Name: cost.Name{Namespace: "team-a", Workspace: "chat"}, Key: account,
			Counters: []cost.Counters{{Incarnation: "1", Prompt: 4 * output * int64(i), Output: output * int64(i)}},
		})
		l.Observe(cost.Step{At: l.Seen.Add(time.Hour), Elapsed: time.Hour, Machines: []cost.Machine{machine}})
	}
	return l
}

// onFour returns the Workspace chat, pinned to one machine with four GPUs.
func onFour(t *testing.T, change func(*planner.Plan)) []client.Object {
	t.Helper()
	in := &render.Inputs{
		Resource:  v1beta1.ResourceSpec{InstanceType: "Standard_A24_4"},
		Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "small-chat"}},
	}
	return []client.Object{workspace(), bought(t, 4, in, func(plan *planner.Plan) {
		plan.InstanceType, plan.GPUsPerNode, plan.MachineGPUs, plan.TensorParallel = "Standard_A24_4", 4, 4, 4
		plan.Performance = &planner.Performance{InputTokens: 1024, OutputTokens: 256, Concurrency: 4, OutputTokensPerSecond: 500}
		if change != nil {
			change(plan)
		}
	})}
}

func TestRightsizeGolden(t *testing.T) {
	published := func(l *cost.Ledger) client.Object {
		return storedCosts(t, "team-a", v1beta1.CostConfigMap, l.Extract("team-a"))
	}
	installed := controllerWith("modelberth", "--cloud=azure", "--region=eastus")
	template := workspace(func(ws *v1beta1.Workspace) { ws.Inference = nil })
	for _, test := range []struct {
		name    string
		objects []client.Object
		args    []string
	}{
		{"rightsize", append(onFour(t, nil), published(loaded(7*24, 36_000)), installed), nil},
		{"rightsize-json", append(onFour(t, nil), published(loaded(7*24, 36_000)), installed), []string{"chat", "-o", "json"}},
		{"rightsize-all", append(onFour(t, nil), storedCosts(t, "modelberth", "modelberth-cost-3", loaded(7*24, 36_000)), installed), []string{"-A"}},
		{"rightsize-busy", append(onFour(t, nil), published(loaded(7*24, 3_600_000)), installed), nil},
		{"rightsize-ceiling", append(onFour(t, nil), published(loaded(7*24, 36_000)), controllerWith("m", "--spending-per-workspace=0.5")), nil},
		{"rightsize-new", append(onFour(t, nil), published(loaded(2*24, 36_000)), installed), nil},
		{"rightsize-unused", append(onFour(t, nil), published(loaded(7*24, 0)), installed), nil},
		{"rightsize-template", []client.Object{template, published(loaded(7*24, 36_000)), installed}, nil},
		{"rightsize-nodes", append(onFour(t, func(plan *planner.Plan) { plan.InstanceType, plan.NodeNames = "", []string{"n"} }), published(loaded(7*24, 1)), installed), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := (&cluster{objects: test.objects}).run(t, session{}, append([]string{"rightsize"}, test.args...)...)
			if got.Code != 0 {
				t.Errorf("exit code %d: %s", got.Code, got.Err)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
}

// TestRightsizeFails checks the errors and their remedies, and the advice without the controller's settings.
func TestRightsizeFails(t *testing.T) {
	noDeployments := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if list.GetObjectKind().GroupVersionKind().Kind == "DeploymentList" {
			return forbidden("deployments")
		}
		return c.List(ctx, list, options...)
	}}
	costs := storedCosts(t, "team-a", v1beta1.CostConfigMap, loaded(7*24, 36_000).Extract("team-a"))
	for _, test := range []struct {
		reason  string
		cluster *cluster
		args    []string
		code    int
		want    string
	}{
		{"no ledger", &cluster{objects: onFour(t, nil)}, nil, 5, "namespace team-a has no recorded costs"},
		{"no such Workspace", &cluster{objects: []client.Object{costs}}, []string{"other"}, 2, "Workspace team-a/other does not exist"},
		{"no time", &cluster{}, []string{"--since", "soon"}, 2, `--since: "soon" is neither a duration`},
		{"too long ago", &cluster{}, []string{"--since", "90d"}, 2, "--since is 90d, but the ledger has no more than 62 days: name a later start"},
		{"a name and all", &cluster{}, []string{"chat", "-A"}, 2, "name Workspaces or pass -A, but not both"},
		{
			"the settings are not for everybody", &cluster{objects: append(onFour(t, nil), costs), faults: noDeployments},
			[]string{"--cloud", "azure", "--region", "eastus"},
			0, "Note: you may not read the controller's settings: plans use the flags of this command.",
		},
		{"no Workspaces", &cluster{objects: []client.Object{costs}}, nil, 0, "There are no Workspaces."},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := test.cluster.run(t, session{}, append([]string{"rightsize"}, test.args...)...)
			if got.Code != test.code || !strings.Contains(got.Err, test.want) {
				t.Errorf("exit code %d, %q; want %d, %q", got.Code, got.Err, test.code, test.want)
			}
		})
	}
}
