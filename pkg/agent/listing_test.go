// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/hub"
)

// repository returns the usual files of a publisher.
func repository() map[string][]byte {
	return map[string][]byte{
		"model-00001-of-00002.safetensors": noise(3 << 20),
		"model-00002-of-00002.safetensors": noise(2 << 20),
		"model.safetensors.index.json":     noise(300),
		"config.json":                      noise(200),
		"tokenizer.json":                   noise(70_000),
		"merges.txt":                       noise(50),
		"README.md":                        noise(90),
		"pytorch_model.bin":                noise(1000),
		"consolidated.safetensors":         noise(5 << 20),
		"original/consolidated.00.pth":     noise(4000),
		"original/params.json":             noise(40),
		"modeling.py":                      noise(60),
	}
}

func selection() Selection {
	return Selection{Weights: []string{"*.safetensors"}, Include: []string{"*.json", "*.txt"}, Exclude: []string{"consolidated*"}}
}

// selected are the files of a selection.
var selected = []string{
	"config.json", "merges.txt", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
	"model.safetensors.index.json", "tokenizer.json",
}

func bySelection(s Selection) func(*Config) {
	return func(c *Config) { c.Files, c.Selection = nil, s }
}

// fetched returns the files on the volume, without the agent's own.
func fetched(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(namesIn(t, dir), func(name string) bool {
		return strings.HasSuffix(name, markerSuffix) || name == listingName
	})
}

func TestFetchSelection(t *testing.T) {
	h := newFakeHub(t, repository())
	// Small files have only git's checksum.
	h.shas["config.json"], h.shas["merges.txt"] = "", ""
	r := newRig(t, h, t.TempDir(), bySelection(selection()))
	if before := r.Progress(); before.Ready || before.Stage != fetch.StageWaiting {
		t.Errorf("before the files are listed, Progress() = %+v: not ready, but waiting", before)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(selected, fetched(t, r.dir)); diff != "" {
		t.Errorf("files on the volume (-want +got):\n%s", diff)
	}
	for _, p := range selected {
		if !slices.Equal(r.read(t, p), h.files[p]) {
			t.Errorf("content of %q differs", p)
		}
	}
	p := r.Progress()
	if !p.Ready || p.Bytes != p.TotalBytes || len(p.Files) != len(selected) {
		t.Errorf("Progress() = %+v, want everything ready", p)
	}
	// One request for the commit, one for the list, and otherwise only requests for contents.
	questions := slices.DeleteFunc(h.requestLog(), func(r string) bool { return strings.Contains(r, "/resolve/") && strings.HasPrefix(r, "GET ") })
	want := []string{"GET /api/models/org/model/revision/main", "GET /api/models/org/model/tree/" + testCommit}
	if diff := cmp.Diff(want, questions); diff != "" {
		t.Errorf("questions to the hub (-want +got):\n%s", diff)
	}
}

func TestSelect(t *testing.T) {
	for _, tc := range []struct {
		reason string
		choose Selection
		want   []string
	}{
		{"weights only, the largest first", Selection{Weights: []string{"*.safetensors"}}, []string{
			"consolidated.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
		}},
		{"an exclusion is stronger", Selection{Weights: []string{"*.safetensors"}, Exclude: []string{"model-*"}}, []string{"consolidated.safetensors"}},
		{"a star does not reach into directories", Selection{Weights: []string{"*.pth", "*.bin"}}, []string{"pytorch_model.bin"}},
		{"a directory can be named", Selection{Weights: []string{"original/*.pth"}}, []string{"original/consolidated.00.pth"}},
		{"further files need not exist", Selection{Weights: []string{"*.bin"}, Include: []string{"*.jinja"}}, []string{"pytorch_model.bin"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			f := &Fetcher{config: Config{Selection: tc.choose}}
			var tree []hub.Entry
			for p, b := range repository() {
				tree = append(tree, hub.Entry{Path: p, Size: int64(len(b))})
			}
			files, err := f.selectFiles(tree)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, file := range files {
				got = append(got, file.Path)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("selectFiles (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectRefuses(t *testing.T) {
	many := make([]hub.Entry, maxListed+1)
	for i := range many {
		many[i].Path = fmt.Sprintf("%d.safetensors", i)
	}
	for _, tc := range []struct {
		reason string
		tree   []hub.Entry
		want   string
	}{
		{"a repository without weights of the kind", []hub.Entry{{Path: "model.gguf"}, {Path: "config.json"}}, "hub: org/model@main/*.safetensors: file not found"},
		{"an empty repository", nil, "hub: org/model@main/*.safetensors: file not found"},
		{"a name that nobody can keep", []hub.Entry{{Path: "a.safetensors"}, {Path: "x\n.json"}}, "control character"},
		{"more files than any model has", many, "the hub lists 2049 matching files: at most 2048 are allowed"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			f := &Fetcher{config: Config{Repo: testRepo, Revision: "main", Selection: selection()}}
			_, err := f.selectFiles(tc.tree)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("selectFiles() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestNothingToSelectIsSaid(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"model.gguf": noise(10)})
	err := newRig(t, h, t.TempDir(), bySelection(selection())).Run(t.Context())
	if !errors.As(err, new(*hub.NotFoundError)) {
		t.Fatalf("Run() = %v, want a NotFoundError", err)
	}
	got := explainFetch(err, source{endpoint: "http://hub", repo: testRepo, revision: "main"})
	want := Termination{ReasonNotFound, `http://hub has no file "*.safetensors" in "org/model" at revision "main": correct the file's name or the revision`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explain (-want +got):\n%s", diff)
	}
}

func TestSelectionAfterARestart(t *testing.T) {
	asked := []string{"GET /api/models/org/model/revision/main", "GET /api/models/org/model/tree/" + testCommit}
	for _, tc := range []struct {
		reason string
		// between is called between two runs of the agent.
		between func(t *testing.T, h *fakeHub, dir string)
		change  func(*Config)
		want    []string
	}{
		{"what was listed and verified needs no hub", func(*testing.T, *fakeHub, string) {}, nil, nil},
		{
			"a branch that moved on does not mix two commits",
			func(_ *testing.T, h *fakeHub, _ string) { h.files["later.safetensors"] = noise(10) }, nil, nil,
		},
		{
			"a file that is lost is fetched, at the commit that was listed",
			func(t *testing.T, _ *fakeHub, dir string) { remove(t, dir+"/config.json") }, nil,
			[]string{"GET /org/model/resolve/" + testCommit + "/config.json"},
		},
		{
			"a lost list is asked for; the files need hashing only if their markers are lost too",
			func(t *testing.T, _ *fakeHub, dir string) { remove(t, dir+"/"+listingName) }, nil, asked,
		},
		{
			"a damaged list is no list",
			func(t *testing.T, _ *fakeHub, dir string) { write(t, dir+"/"+listingName, []byte(`{"version":1`)) }, nil, asked,
		},
		{
			"a list that leads out of the volume is no list",
			func(t *testing.T, _ *fakeHub, dir string) {
				data, err := os.ReadFile(dir + "/" + listingName)
				if err != nil {
					t.Fatal(err)
				}
				write(t, dir+"/"+listingName, []byte(strings.Replace(string(data), "config.json", "../x.json", 1)))
			}, nil, asked,
		},
		{
			"another revision is another question", func(*testing.T, *fakeHub, string) {},
			func(c *Config) { c.Revision = testCommit }, asked[1:],
		},
		{
			"another selection is another question", func(*testing.T, *fakeHub, string) {},
			func(c *Config) { c.Selection.Include = []string{"*.json"} }, asked,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := newFakeHub(t, repository())
			dir := t.TempDir()
			if err := newRig(t, h, dir, bySelection(selection())).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := len(h.requestLog())
			tc.between(t, h, dir)
			changes := []func(*Config){bySelection(selection())}
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			r := newRig(t, h, dir, changes...)
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, append([]string(nil), h.requestLog()[before:]...)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(selected, fetched(t, dir)); diff != "" {
				t.Errorf("files on the volume (-want +got):\n%s", diff)
			}
			if !r.Progress().Ready {
				t.Errorf("Progress() = %+v, want ready", r.Progress())
			}
		})
	}
}

// For a mirror without checksums in its list, the agent queries each file.
func TestListWithoutChecksums(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"a.safetensors": noise(5000)})
	h.setFault(func(w http.ResponseWriter, r *http.Request) (int64, bool) {
		if strings.Contains(r.URL.Path, "/tree/") {
			fmt.Fprint(w, `[{"type":"file","path":"a.safetensors","size":5000}]`)
			return 0, true
		}
		return noLimit, false
	})
	r := newRig(t, h, t.TempDir(), bySelection(selection()))
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "HEAD /org/model/resolve/" + testCommit + "/a.safetensors"; !slices.Contains(h.requestLog(), want) {
		t.Errorf("%q was not asked: %v", want, h.requestLog())
	}
	if !slices.Equal(r.read(t, "a.safetensors"), h.files["a.safetensors"]) {
		t.Error("content differs")
	}
}

func TestParseSelection(t *testing.T) {
	got, err := Parse(strings.Fields("fetch --repo o/n --weights *.safetensors --include *.json --include *.txt --exclude c*"), env(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	want := Selection{Weights: []string{"*.safetensors"}, Include: []string{"*.json", "*.txt"}, Exclude: []string{"c*"}}
	if diff := cmp.Diff(want, got.Targets[0].Selection); diff != "" || len(got.Targets[0].Files) != 0 {
		t.Errorf("Selection (-want +got):\n%s, files %v", diff, got.Targets[0].Files)
	}
}

// The agent accepts its arguments in the pods of package workload's golden files.
func TestUnderstandsItsPod(t *testing.T) {
	for _, tc := range []struct {
		golden string
		files  int
		want   Selection
	}{
		{"preset-1-gpu", 2, Selection{}},
		{"weights-supply", 2, Selection{}},
		{"whole-repository", 0, Selection{Weights: []string{"*.safetensors"}, Include: []string{"*.json", "*.txt"}, Exclude: []string{"consolidated*"}}},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			data, err := os.ReadFile("../workload/testdata/" + tc.golden + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			_, rest, found := strings.Cut(string(data), "initContainers:\n")
			// The last agent fetches. An earlier one may resolve the commit.
			_, rest, _ = strings.Cut(rest[strings.LastIndex(rest, "      - args:\n"):], "\n")
			block, _, ends := strings.Cut(rest, "image:")
			block, _, _ = strings.Cut(block, "env:")
			if !found || !ends {
				t.Fatal("the golden file has no arguments of the agent")
			}
			var args []string
			for line := range strings.Lines(block) {
				if arg, isItem := strings.CutPrefix(strings.TrimSpace(line), "- "); isItem {
					args = append(args, strings.Trim(arg, `'"`))
				}
			}
			got, err := Parse(args, env(), os.Stderr)
			if err != nil {
				t.Fatalf("%q: %v", args, err)
			}
			model := got.Targets[0]
			if diff := cmp.Diff(tc.want, model.Selection); diff != "" || len(model.Files) != tc.files {
				t.Errorf("%d files, want %d; selection (-want +got):\n%s", len(model.Files), tc.files, diff)
			}
		})
	}
}
