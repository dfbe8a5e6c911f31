// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

var update = flag.Bool("update", false, "write the golden files")

// choice is a number of machines of a type, and a layout. A zero layout means the planner's choice.
type choice struct {
	nodes            int
	machine          string
	tensor, pipeline int
}

// view has the choices of machines for a preset's page. The first sufficient choice counts.
type view struct {
	name, engine string
	choices      []choice
}

func views(m model.Model) []view {
	whole := []choice{
		{nodes: 1, machine: "Standard_ND96isr_H100_v5"}, {nodes: 1, machine: "Standard_ND96isr_H200_v5"}, {nodes: 1, machine: "p6-b300.48xlarge"},
	}
	small := append([]choice{
		{nodes: 1, machine: "Standard_NV36ads_A10_v5"},
		{nodes: 1, machine: "Standard_NC24ads_A100_v4"},
		{nodes: 1, machine: "Standard_NC40ads_H100_v5"},
		{nodes: 1, machine: "Standard_NC80adis_H100_v5"},
		{nodes: 1, machine: "Standard_NC96ads_A100_v4"},
	}, whole...)
	out := []view{
		{"small", "", small},
		{"large", "", whole},
		{"several", "", []choice{
			{2, "Standard_NC24ads_A100_v4", 1, 2},
			{2, "Standard_NC80adis_H100_v5", 2, 2},
			{2, "Standard_ND96isr_H100_v5", 8, 2},
			{2, "Standard_ND96isr_H200_v5", 8, 2},
			{2, "Standard_ND96isr_H200_v5", 4, 4},
			{2, "p6-b300.48xlarge", 8, 2},
		}},
	}
	if slices.ContainsFunc(m.Artifacts, func(a model.Artifact) bool { return a.Engine == llamacpp.Name && a.Native }) {
		out = append(out, view{llamacpp.Name, llamacpp.Name, small})
	}
	return out
}

// shop is the shipped catalogue, and its planner.
type shop struct {
	catalog *catalog.Catalog
	planner *planner.Planner
}

func open(t *testing.T) shop {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return shop{all, planner.New(all, planner.Settings{Clouds: []string{"azure", "aws"}, Engines: render.Engines()})}
}

// serve plans and renders a preset like the controller, on the first sufficient machines.
func (s shop) serve(m model.Model, on view) (planner.Plan, render.Rendered, []string, error) {
	ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: m.Name}}}
	ws.Namespace, ws.Name, ws.UID = "team-a", "chat", "6a3c9b1e-0000-4000-8000-000000000001"
	var first error
	for _, c := range on.choices {
		plan, err := s.planner.Plan(planner.Request{Model: &m, Engine: on.engine, Constraints: planner.Constraints{
			InstanceType: c.machine, MaxNodes: c.nodes, Engine: planner.EngineSettings{TensorParallel: c.tensor, PipelineParallel: c.pipeline},
		}})
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		data, _ := s.catalog.Engine(plan.Engine)
		rendered, warnings, err := render.Preset(render.Input{
			Workspace: ws, Model: m, Plan: plan, Data: data, Settings: render.Settings{
				AllowRemoteCode: true, Workload: workload.Settings{AgentImage: "modelberth-agent"},
			},
		})
		return plan, rendered, slices.Concat(plan.Warnings, warnings), err
	}
	return planner.Plan{}, render.Rendered{}, nil, first
}

// page returns what differs between presets: image, arguments, variables, resources and volumes.
func (s shop) page(t *testing.T, m model.Model) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "%s serves %s\n", m.Name, m.HubID)
	for _, on := range views(m) {
		plan, rendered, warnings, err := s.serve(m, on)
		fmt.Fprintf(&text, "\n## %s\n", on.name)
		if plan.Nodes > 0 {
			fmt.Fprintf(&text, "plan %s, %d sequences of %d tokens\n", plan.Summary(), plan.Concurrency, plan.MaxModelLen)
		}
		for _, warning := range warnings {
			fmt.Fprintf(&text, "warning %s\n", warning)
		}
		if err != nil {
			fmt.Fprintf(&text, "refused %v\n", err)
			continue
		}
		for _, pod := range pods(t, rendered) {
			writePod(&text, pod)
		}
	}
	return text.String()
}

// namedPod is one of the templates in a revision.
type namedPod struct {
	name string
	spec corev1.PodSpec
}

// pods returns the templates in a ControllerRevision: one for the serving pod, and one for the others of a group.
func pods(t *testing.T, rendered render.Rendered) []namedPod {
	t.Helper()
	raw, err := json.Marshal(rendered)
	if err != nil {
		t.Fatal(err)
	}
	var stored struct {
		Template corev1.PodTemplateSpec  `json:"template"`
		Worker   *corev1.PodTemplateSpec `json:"worker"`
	}
	if err := json.Unmarshal(raw, &stored); err != nil {
		t.Fatal(err)
	}
	out := []namedPod{{"leader", stored.Template.Spec}}
	if stored.Worker != nil {
		out = append(out, namedPod{"worker", stored.Worker.Spec})
	}
	return out
}

func writePod(text *strings.Builder, pod namedPod) {
	for _, c := range slices.Concat(pod.spec.Containers, pod.spec.InitContainers) {
		fmt.Fprintf(text, "\n# %s %s: %s\n", pod.name, c.Name, c.Image)
		for i, arg := range c.Args {
			switch {
			case i > 0 && (strings.HasPrefix(arg, "--") || arg == "fetch" || arg == "verify" || arg == "resolve"):
				text.WriteString("\n")
			case i > 0:
				text.WriteString(" ")
			}
			text.WriteString(arg)
		}
		text.WriteString("\n")
		for _, v := range c.Env {
			fmt.Fprintf(text, "env %s=%s\n", v.Name, v.Value)
		}
		text.WriteString("requests")
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
			quantity := c.Resources.Requests[name]
			fmt.Fprintf(text, " %s=%s", name, quantity.String())
		}
		text.WriteString("\nmounts")
		for _, mount := range c.VolumeMounts {
			fmt.Fprintf(text, " %s=%s", mount.MountPath, volume(pod.spec, mount))
		}
		text.WriteString("\n")
	}
}

// volume describes a mount.
func volume(pod corev1.PodSpec, mount corev1.VolumeMount) string {
	at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
	words := []string{mount.Name}
	if at < 0 {
		return "nothing"
	}
	if dir := pod.Volumes[at].EmptyDir; dir != nil && dir.SizeLimit != nil {
		words = append(words, string(dir.Medium), dir.SizeLimit.String())
	}
	if mount.ReadOnly {
		words = append(words, "ro")
	}
	return strings.Join(words, ",")
}

// fileName returns the file of a preset's page.
func fileName(m model.Model) string {
	return filepath.Join("testdata", "presets", strings.ReplaceAll(m.Name, "/", "_")+".txt")
}

func TestPresets(t *testing.T) {
	s := open(t)
	pages := map[string]bool{}
	for _, m := range s.catalog.Models() {
		path := fileName(m)
		pages[path] = true
		t.Run(m.Name, func(t *testing.T) {
			got := s.page(t, m)
			if again := s.page(t, m); got != again {
				t.Errorf("rendered twice, it differs:\n%s", cmp.Diff(got, again))
			}
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v: run the test with -update to write it", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", path, diff)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join("testdata", "presets", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !pages[file] {
			t.Errorf("%s is the page of no preset: delete it", file)
		}
	}
	if len(pages) < 60 {
		t.Errorf("%d presets", len(pages))
	}
}

// Every flag in a preset's pods is a flag of the engine.
func TestPresetsHaveKnownFlags(t *testing.T) {
	s := open(t)
	checked := 0
	for _, m := range s.catalog.Models() {
		for _, on := range views(m) {
			plan, rendered, _, err := s.serve(m, on)
			if err != nil {
				continue
			}
			data, _ := s.catalog.Engine(plan.Engine)
			for _, pod := range pods(t, rendered) {
				if command := pod.spec.Containers[0].Command; len(command) > 0 {
					continue // another program of the engine's image, whose flags are not the server's
				}
				for _, arg := range pod.spec.Containers[0].Args {
					if name, isFlag := strings.CutPrefix(arg, "--"); isFlag && !isKnown(data, name) {
						t.Errorf("%s, %s: %s is not among the flags of %s %s", m.Name, on.name, arg, data.Name, data.Version)
					}
				}
				checked++
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d pods were looked at", checked)
	}
}

func isKnown(data catalog.Engine, name string) bool {
	if _, known := data.Flags[name]; known {
		return true
	}
	for _, f := range data.Flags {
		if slices.Contains(f.Negations, name) {
			return true
		}
	}
	return false
}
