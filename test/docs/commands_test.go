// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/presets"
	"github.com/modelberth/modelberth/test/docs/pages"
)

const chart = "charts/modelberth"

// TestShellBlocks runs the shell commands of all pages with recorders in place of programs. It parses each call of
// kubectl berth as the command does, and renders the chart for each helm upgrade. The integration tests run kubectl.
func TestShellBlocks(t *testing.T) {
	seen := map[string]int{}
	for _, b := range blocks(t) {
		if b.Language != "sh" || strings.HasPrefix(b.Text, "#!") {
			continue
		}
		calls, err := pages.Record(t.Context(), b)
		if err != nil {
			t.Errorf("%s: %v\n%s", b.Page, err, b.Text)
		}
		for _, call := range calls {
			seen[call.Program]++
			switch {
			case call.Program == "kubectl-berth":
				checkBerth(t, b, call.Args)
			case call.Program == "kubectl" && call.Args[0] == "berth":
				seen["kubectl-berth"]++
				checkBerth(t, b, call.Args[1:])
			case call.Program == "helm" && (call.Args[0] == "upgrade" || call.Args[0] == "template"):
				renderChart(t, b, call.Args[1:])
			case call.Program == "helm" && call.Args[0] != "uninstall":
				t.Errorf("%s: helm %s has no check here", b.Page, call.Args[0])
			}
		}
	}
	for program, least := range map[string]int{"kubectl": 30, "kubectl-berth": 20, "helm": 15} {
		if seen[program] < least {
			t.Errorf("%d calls of %s were found, want %d or more: does the test still know what blocks look like?", seen[program], program, least)
		}
	}
}

// TestCommandsAreShellBlocks checks that the tests of commands see all of them: a block of commands names its language.
func TestCommandsAreShellBlocks(t *testing.T) {
	for _, b := range blocks(t) {
		first, _, _ := strings.Cut(b.Text, " ")
		isGenerated := b.Page == "docs/reference/cli.md"
		if b.Language == "" && !isGenerated && slices.Contains([]string{"kubectl", "helm", "make", "bin/kubectl-berth"}, first) {
			t.Errorf("%s: no test checks these commands: begin the block with ```sh\n%s", b.Page, b.Text)
		}
	}
}

// checkBerth parses the arguments of kubectl berth, and runs nothing.
func checkBerth(t *testing.T, b pages.Block, args []string) {
	t.Helper()
	root := cli.New(cli.World{Getenv: func(string) string { return "" }, Presets: presets.FS()})
	command, rest, err := root.Find(args)
	if err == nil {
		command.InitDefaultHelpFlag()
		err = command.ParseFlags(rest)
	}
	if err == nil && !command.Runnable() {
		t.Errorf("%s: kubectl berth %s is no command", b.Page, strings.Join(args, " "))
		return
	}
	if err == nil {
		err = command.ValidateArgs(command.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: kubectl berth %s: %v", b.Page, strings.Join(args, " "), err)
	}
}

// renderChart renders the tree's chart with the arguments of a helm upgrade. A released chart differs from it in its
// version and in its images alone, as hack/release tests.
func renderChart(t *testing.T, b pages.Block, args []string) {
	t.Helper()
	out := []string{"template", "--kube-version=1.35.4"}
	for _, arg := range args {
		switch {
		case strings.HasPrefix(arg, "oci://") && strings.HasSuffix(arg, "/charts/modelberth"):
			out = append(out, chart, "--set=image.repository=modelberth-controller,agentImage.repository=modelberth-agent",
				"--set=registry="+strings.TrimSuffix(strings.TrimPrefix(arg, "oci://"), "/charts/modelberth"))
		case arg == "--reuse-values":
			out = append(out, "--values=test/chart/testdata/minimal.values.yaml", "--set=router.image.repository=modelberth-router")
		case arg == "--values=values.yaml":
			out = append(out, "--values="+valuesOf(t, b.Page))
		case arg == "--install" || arg == "--wait" || strings.HasPrefix(arg, "--version="):
		default:
			out = append(out, arg)
		}
	}
	runHelm(t, b, out)
}

func runHelm(t *testing.T, b pages.Block, args []string) {
	t.Helper()
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal(`HELM names no helm binary: run this through make test-unit, or after: eval "$(make env)"`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, helm, args...)
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s\nhelm %s\n%s", b.Page, err, out, strings.Join(args, " "), b.Text)
	}
}

// valuesOf writes the chart's values in a page to a file. If the page has none, the file has the smallest ones.
func valuesOf(t *testing.T, page string) string {
	t.Helper()
	var texts []string
	for _, b := range blocks(t) {
		if b.Page == page && isValues(t, b) {
			texts = append(texts, b.Text)
		}
	}
	switch len(texts) {
	case 0:
		return "test/chart/testdata/minimal.values.yaml"
	case 1:
	default:
		t.Errorf("%s has %d blocks with values of the chart: which one does the command name?", page, len(texts))
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(texts[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// isValues reports whether a block has values of the chart. A Workspace's inference.weights has one of their names.
func isValues(t *testing.T, b pages.Block) bool {
	t.Helper()
	var known, found map[string]any
	if err := yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &known); err != nil {
		t.Fatal(err)
	}
	if b.Language != "yaml" || yaml.Unmarshal([]byte(b.Text), &found) != nil || len(found) == 0 {
		return false
	}
	var inference struct {
		Weights *v1beta1.WeightsSource `json:"weights"`
	}
	isInference := yaml.UnmarshalStrict([]byte(b.Text), &inference) == nil
	return !isInference && !slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(key string) bool { return known[key] == nil })
}

// TestValues renders the chart with each block of values in the pages.
func TestValues(t *testing.T) {
	ran := 0
	for _, b := range blocks(t) {
		if !isValues(t, b) {
			continue
		}
		ran++
		path := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(path, []byte(b.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		runHelm(t, b, []string{
			"template", "modelberth", chart, "--kube-version=1.35.4", "--values=test/chart/testdata/minimal.values.yaml", "--values=" + path,
		})
	}
	if ran < 5 {
		t.Errorf("%d blocks with values were found: does the test still know what they look like?", ran)
	}
}
