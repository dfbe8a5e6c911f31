// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/presets"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFlags compares the table of flags with the flags.
func TestFlags(t *testing.T) {
	var o options.Controller
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	o.Bind(flags)
	var want []string
	flags.VisitAll(func(f *flag.Flag) {
		value := ""
		if f.DefValue != "" {
			value = "`" + f.DefValue + "` "
		}
		want = append(want, fmt.Sprintf("| `--%s` | %s| %s |", f.Name, value, f.Usage))
	})
	var got []string
	for line := range strings.Lines(read(t, "docs/reference/flags.md")) {
		if strings.HasPrefix(line, "| `--") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/reference/flags.md and pkg/options differ (-code +docs):\n%s", diff)
	}
}

// TestTroubleshooting checks that every reason has an entry, and every entry a reason.
func TestTroubleshooting(t *testing.T) {
	want := reasons(t)
	var got []string
	for _, match := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(read(t, "docs/troubleshooting.md"), -1) {
		got = append(got, match[1])
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/troubleshooting.md and the reasons in api/v1beta1 differ (-code +docs):\n%s", diff)
	}
}

// reasons are the values of the API's reasons, sorted.
func reasons(t *testing.T) []string {
	t.Helper()
	var values []string
	for _, name := range []string{"conditions.go", "inferenceset_names.go"} {
		values = append(values, reasonsIn(t, "api/v1beta1/"+name)...)
	}
	slices.Sort(values)
	return values
}

// reasonsIn are those of one file.
func reasonsIn(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s is no literal", spec.Names[0].Name)
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
		return true
	})
	if len(values) == 0 {
		t.Fatalf("%s holds no reason that this test can find", path)
	}
	return values
}

// pages are the pages of the documentation, by path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		out[name] = read(t, name)
	}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			out[path] = read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// anchor is the name that a heading gets.
func anchor(heading string) string {
	heading = regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(strings.TrimSpace(heading), " ", "-")
}

// TestLinks follows every link that stays within the repository.
func TestLinks(t *testing.T) {
	all := pages(t)
	headings := regexp.MustCompile(`(?m)^#+ (.+)$`)
	links := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	checked := 0
	for page, text := range all {
		for _, match := range links.FindAllStringSubmatch(text, -1) {
			target, fragment, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			checked++
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, match[1])
				continue
			}
			if fragment == "" {
				continue
			}
			var anchors []string
			for _, heading := range headings.FindAllStringSubmatch(all[path], -1) {
				anchors = append(anchors, anchor(heading[1]))
			}
			if !slices.Contains(anchors, fragment) {
				t.Errorf("%s links to %s, and %s has no such heading", page, match[1], path)
			}
		}
	}
	if checked == 0 {
		t.Error("no link was found: does the test still know what links look like?")
	}
}

// block is a fenced block of a page.
type block struct{ page, language, text string }

func blocks(t *testing.T) []block {
	t.Helper()
	var out []block
	fence := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)\n```$")
	for page, text := range pages(t) {
		for _, match := range fence.FindAllStringSubmatch(text, -1) {
			out = append(out, block{page: page, language: match[1], text: match[2]})
		}
	}
	return out
}

// TestMakeTargets checks that every target named in a page exists.
func TestMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[match[1]] = true
	}
	named := 0
	for page, text := range pages(t) {
		for _, match := range regexp.MustCompile("(?m)(?:^|`|\" )make ([a-z0-9-]+)").FindAllStringSubmatch(text, -1) {
			named++
			if !targets[match[1]] {
				t.Errorf("%s names `make %s`, which the Makefile does not have", page, match[1])
			}
		}
	}
	if named < 5 {
		t.Errorf("only %d targets were found in the pages: does the test still know what they look like?", named)
	}
}

// TestManifests decodes every manifest of a Workspace in the pages and in examples.
func TestManifests(t *testing.T) {
	texts := map[string]string{}
	for i, b := range blocks(t) {
		if b.language == "yaml" {
			texts[fmt.Sprintf("%s, block %d", b.page, i)] = b.text
		}
	}
	for _, pattern := range []string{"examples/*.yaml", "examples/bad/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file matches %s (%v)", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(text)
		}
	}
	for where, text := range texts {
		for document := range strings.SplitSeq(text, "\n---\n") {
			var kind struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Errorf("%s is not YAML: %v", where, err)
			}
			if kind.Kind != v1beta1.WorkspaceKind {
				continue
			}
			var ws v1beta1.Workspace
			if err := yaml.UnmarshalStrict([]byte(document), &ws); err != nil {
				t.Errorf("%s: %v", where, err)
			}
			if want := v1beta1.GroupVersion().String(); kind.APIVersion != want {
				t.Errorf("%s: apiVersion is %s, want %s", where, kind.APIVersion, want)
			}
		}
	}
}

var update = flag.Bool("update", false, "write what commands print into the pages that show it")

// TestConsole runs the commands shown in pages, and compares their output.
func TestConsole(t *testing.T) {
	ran := 0
	for _, b := range blocks(t) {
		command, _, _ := strings.Cut(b.text, "\n")
		args, found := strings.CutPrefix(command, "$ kubectl berth ")
		if b.language != "console" || !found {
			continue
		}
		ran++
		var out bytes.Buffer
		cli.Main(t.Context(), strings.Fields(args), cli.World{
			In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(string) string { return "" }, Presets: presets.FS(),
		})
		printed := command + "\n" + strings.TrimRight(out.String(), "\n")
		if *update {
			path := filepath.Join(root, b.page)
			if err := os.WriteFile(path, []byte(strings.Replace(read(t, b.page), b.text, printed, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(b.text, printed); diff != "" {
			t.Errorf("%s shows something else than `%s` prints; if that is right, run this with -update (-page +printed):\n%s",
				b.page, command, diff)
		}
	}
	if ran == 0 {
		t.Error("no command was found: does the test still know what they look like?")
	}
}

// renderChart runs one command line of a page.
func renderChart(t *testing.T, b block, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	command.Dir = root
	command.Env = append(command.Environ(), "REGISTRY=registry.example/modelberth")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s\n%s", b.page, err, out, b.text)
	}
}

// TestInstallCommands renders the chart with each install command of the pages, as a shell passes it on.
func TestInstallCommands(t *testing.T) {
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal(`HELM names no helm binary: run this through make test-unit, or after: eval "$(make env)"`)
	}
	ran := 0
	for _, b := range blocks(t) {
		rest, found := strings.CutPrefix(b.text, "helm upgrade --install ")
		if b.language != "sh" || !found {
			continue
		}
		ran++
		// A released chart differs from the tree's in its version and in its images alone, as hack/release tests.
		rest = strings.Replace(rest, "oci://$REGISTRY/charts/modelberth --version=0.1.0",
			"charts/modelberth --set=registry=$REGISTRY,image.repository=modelberth-controller,agentImage.repository=modelberth-agent", 1)
		renderChart(t, b, helm+" template --kube-version=1.35.4 "+rest)
	}
	if ran < 2 {
		t.Errorf("%d install commands were found, want one for each cloud", ran)
	}
}
