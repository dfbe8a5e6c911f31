// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/router/scaler"
	"github.com/modelberth/modelberth/presets"
	"github.com/modelberth/modelberth/test/docs/pages"
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

// readPages returns the pages of the documentation, by path from the root.
func readPages(t *testing.T) map[string]string {
	t.Helper()
	out, err := pages.Read(root)
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
	all := readPages(t)
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

func blocks(t *testing.T) []pages.Block {
	t.Helper()
	return pages.Blocks(readPages(t))
}

// TestIndex checks that the index by task links every page next to it.
func TestIndex(t *testing.T) {
	all := readPages(t)
	for page := range all {
		name, found := strings.CutPrefix(page, "docs/")
		if found && !strings.Contains(name, "/") && name != "README.md" && !strings.Contains(all["docs/README.md"], "]("+name) {
			t.Errorf("docs/README.md does not link %s", name)
		}
	}
}

// TestNamedTests checks that every test named in a page exists.
func TestNamedTests(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, match := range declaration.FindAllStringSubmatch(read(t, path), -1) {
			declared[match[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for page, text := range readPages(t) {
		for _, match := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1) {
			named++
			if !declared[match[1]] {
				t.Errorf("%s names the test %s, which does not exist", page, match[1])
			}
		}
	}
	if named < 10 {
		t.Errorf("only %d tests were found in the pages: does the test still know what they look like?", named)
	}
}

// TestMakeTargets checks that every target named in a page exists.
func TestMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[match[1]] = true
	}
	named := 0
	for page, text := range readPages(t) {
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
		if b.Language == "yaml" {
			texts[fmt.Sprintf("%s, block %d", b.Page, i)] = b.Text
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
		command, _, _ := strings.Cut(b.Text, "\n")
		args, found := strings.CutPrefix(command, "$ kubectl berth ")
		if b.Language != "console" || !found {
			continue
		}
		ran++
		var out bytes.Buffer
		cli.Main(t.Context(), strings.Fields(args), cli.World{
			In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(string) string { return "" }, Presets: presets.FS(),
		})
		printed := command + "\n" + strings.TrimRight(out.String(), "\n")
		if *update {
			path := filepath.Join(root, b.Page)
			if err := os.WriteFile(path, []byte(strings.Replace(read(t, b.Page), b.Text, printed, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(b.Text, printed); diff != "" {
			t.Errorf("%s shows something else than `%s` prints; if that is right, run this with -update (-page +printed):\n%s",
				b.Page, command, diff)
		}
	}
	if ran == 0 {
		t.Error("no command was found: does the test still know what they look like?")
	}
}

// TestScaledObjects asks the router the questions of the ScaledObjects in the pages.
func TestScaledObjects(t *testing.T) {
	checked := 0
	for page, text := range readPages(t) {
		for _, match := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
			var object struct {
				Kind     string
				Metadata struct{ Namespace string }
				Spec     struct {
					ScaleTargetRef struct{ APIVersion, Kind, Name string }
					Triggers       []struct {
						Type     string
						Metadata map[string]string
					}
				}
			}
			if err := yaml.Unmarshal([]byte(match[1]), &object); err != nil || object.Kind != "ScaledObject" {
				continue
			}
			target := object.Spec.ScaleTargetRef
			if target.APIVersion != v1beta1.GroupVersion().String() || target.Kind != v1beta1.InferenceSetKind {
				t.Errorf("%s: a ScaledObject targets %s %s", page, target.APIVersion, target.Kind)
			}
			for _, trigger := range object.Spec.Triggers {
				if trigger.Metadata["set"] != target.Name {
					t.Errorf("%s: a ScaledObject of %q asks about %q", page, target.Name, trigger.Metadata["set"])
				}
				if err := scaler.Check(object.Metadata.Namespace, trigger.Metadata); err != nil {
					t.Errorf("%s: %v", page, err)
				}
				checked++
			}
		}
	}
	if checked == 0 {
		t.Error("no page has a ScaledObject with a trigger")
	}
}
