// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/agent/oci"
	"github.com/modelberth/modelberth/pkg/hub"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestParse(t *testing.T) {
	sum := strings.Repeat("a", 64)
	base := Settings{
		Listen: ":8090", TerminationLog: "/dev/termination-log", GiveUpAfter: time.Minute, Connections: 8,
		Unpack: oci.Limits{Bytes: 100 << 30, Entries: 100_000},
		Drain:  Drain{Settle: 5 * time.Second, Timeout: 100 * time.Second},
	}
	target := Target{
		Name: "model", Repo: "org/name", Revision: "main", Files: []string{"a.gguf"}, SHA256: map[string]hub.Digest{}, Sizes: map[string]int64{}, Dest: "/models",
	}
	with := func(change func(*Settings)) Settings {
		s := base
		change(&s)
		return s
	}
	const fetch = " fetch --repo org/name --file a.gguf"
	for _, tc := range []struct {
		reason string
		args   string
		env    []string
		want   Settings
	}{
		{"nothing to fetch", "", nil, base},
		{"the defaults", fetch, nil, with(func(s *Settings) { s.Targets = []Target{target} })},
		{
			"limits of what is unpacked", "--unpack-limit-gib 2 --unpack-limit-entries 7" + fetch, nil, with(func(s *Settings) {
				s.Targets, s.Unpack = []Target{target}, oci.Limits{Bytes: 2 << 30, Entries: 7}
			}),
		},
		{
			"everything of a fetch", "--endpoint http://hub --listen :1 --termination-log /t --give-up-after 5s --connections 2" +
				" fetch --for weights --repo org/name --revision v1 --file a.gguf --file q4/b=.gguf --sha256 q4/b=.gguf=" + strings.ToUpper(sum) + " --dest /d",
			[]string{"HF_TOKEN", " hf_x\n"},
			Settings{
				Endpoint: "http://hub", Token: "hf_x", Listen: ":1", TerminationLog: "/t", GiveUpAfter: 5 * time.Second, Connections: 2,
				Drain: base.Drain, Unpack: base.Unpack,
				Targets: []Target{{
					Name: "weights", Repo: "org/name", Revision: "v1", Files: []string{"a.gguf", "q4/b=.gguf"},
					SHA256: map[string]hub.Digest{"q4/b=.gguf": {Algorithm: hub.SHA256, Hex: sum}}, Sizes: map[string]int64{}, Dest: "/d",
				}},
			},
		},
		{
			"two targets", fetch + " fetch --for one --repo org/adapter --weights *.safetensors --dest /models/adapters/one", nil,
			with(func(s *Settings) {
				s.Targets = []Target{target, {
					Name: "one", Repo: "org/adapter", Revision: "main", Selection: Selection{Weights: []string{"*.safetensors"}},
					SHA256: map[string]hub.Digest{}, Sizes: map[string]int64{}, Dest: "/models/adapters/one",
				}}
			}),
		},
		{
			"files that are there", "--ca-file /ca.pem verify --dest /models --file a.gguf --size a.gguf=12 --sha256 a.gguf=" + sum, nil,
			with(func(s *Settings) {
				s.CAFile = "/ca.pem"
				s.Targets = []Target{{
					Name: "model", IsThere: true, Files: []string{"a.gguf"}, Sizes: map[string]int64{"a.gguf": 12},
					SHA256: map[string]hub.Digest{"a.gguf": {Algorithm: hub.SHA256, Hex: sum}}, Dest: "/models",
				}}
			}),
		},
		{"an artifact", "fetch --image r.example/m:v1 --dest /d", nil, with(func(s *Settings) {
			s.Targets = []Target{{
				Name: "model", Image: "r.example/m:v1", Revision: "main", Selection: Selection{Weights: everything()},
				SHA256: map[string]hub.Digest{}, Sizes: map[string]int64{}, Dest: "/d",
			}}
		})},
		{"a cache", "--cache /cache --cache-limit-gib 200", nil, with(func(s *Settings) { s.Cache, s.CacheLimit = "/cache", 200<<30 })},
		{
			"a member that leads", "--listen 0.0.0.0:81 --group 3 --peer ws-0.ws-headless --peer other:82" +
				" --drain-metrics http://127.0.0.1:5000/metrics --drain-busy e:running --drain-busy e:waiting --drain-settle 1s --drain-timeout 2m",
			[]string{"POD_UID", "uid"},
			with(func(s *Settings) {
				s.Listen = "0.0.0.0:81"
				s.Group = Group{ID: "uid", Number: 3, Peers: []string{"ws-0.ws-headless:81", "other:82"}}
				s.Drain = Drain{
					Metrics: "http://127.0.0.1:5000/metrics", Busy: []string{"e:running", "e:waiting"},
					Settle: time.Second, Timeout: 2 * time.Minute,
				}
			}),
		},
		{
			"a member that is held back", "--await ws-worker-1.ws-headless:50052 --await b:1 --not-before 2026-01-02T03:04:05Z", nil,
			with(func(s *Settings) {
				s.Group.Await = []string{"ws-worker-1.ws-headless:50052", "b:1"}
				s.Group.NotBefore = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			}),
		},
		{"a member that follows", "--drain-leader ws-0.ws-headless", nil, with(func(s *Settings) { s.Drain.Leader = "ws-0.ws-headless:8090" })},
		{"the endpoint from the environment", "", []string{"HF_ENDPOINT", "http://mirror"}, with(func(s *Settings) { s.Endpoint = "http://mirror" })},
		{"a flag beats the environment", "--endpoint http://b", []string{"HF_ENDPOINT", "http://a"}, with(func(s *Settings) { s.Endpoint = "http://b" })},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := Parse(strings.Fields(tc.args), env(tc.env...), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefusesPodFlags(t *testing.T) {
	fetch := []string{"fetch", "--repo", "o/n", "--file", "a"}
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"an unknown flag", []string{"--what"}, "flag provided but not defined"},
		{"no connections", []string{"--connections", "0"}, "--connections is 0"},
		{"no time for stalls", []string{"--give-up-after", "0s"}, "--give-up-after is 0s"},
		{"nowhere to listen", []string{"--listen", "8090"}, `--listen is "8090"`},
		{"peers of nobody", []string{"--peer", "a"}, "set POD_UID"},
		{"an empty peer", []string{"--peer", ""}, "it is empty"},
		{"a member without a port", []string{"--await", "a"}, `"a" is not of the form HOST:PORT`},
		{"no time", []string{"--not-before", "noon"}, `"noon" is not a time such as 2006-01-02T15:04:05Z`},
		{"two ways to drain", []string{"--drain-leader", "a", "--drain-metrics", "http://b"}, "cannot be combined"},
		{"metrics without gauges", []string{"--drain-metrics", "http://b"}, "need each other"},
		{"gauges without metrics", []string{"--drain-busy", "b"}, "need each other"},
		{"less than no time", []string{"--drain-timeout", "-1s"}, "cannot be negative"},
		{"a cache somewhere", []string{"--cache", "cache"}, `--cache is "cache": give an absolute path`},
		{"a limit of nothing", []string{"--cache-limit-gib", "5"}, "has no effect without --cache"},
		{"a limit that is none", []string{"--cache", "/c", "--cache-limit-gib", "0"}, "is not a number of GiB"},
		{"two sources", []string{"fetch", "--repo", "o/n", "--image", "r.example/m:v1"}, "cannot be combined"},
		{"an artifact's name that is none", []string{"fetch", "--image", "R.example/M M"}, `"R.example/M M" is not the name of an artifact`},
		{"a size of no file", []string{"verify", "--file", "a", "--size", "b=1"}, `--size names "b"`},
		{"a size that is none", []string{"verify", "--file", "a", "--size", "a=x"}, "is not of the form PATH=BYTES"},
		{"a size without a file", []string{"verify", "--file", "a", "--size", "12"}, "is not of the form PATH=BYTES"},
		{"a size to fetch", []string{"fetch", "--repo", "o/n", "--file", "a", "--size", "a=1"}, "flag provided but not defined"},
		{"a repository to verify", []string{"verify", "--repo", "o/n"}, "flag provided but not defined"},
		{"another verb", []string{"push"}, `unexpected argument "push"`},
		{"two targets in one place", slices.Concat(fetch, fetch), `--dest "/models" is given twice`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if _, err := Parse(tc.args, env(), io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestParseRefusesTargets(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"no file", []string{"--repo", "o/n"}, "--file is missing"},
		{"no repository", []string{"--file", "a"}, `--repo is "": give ORG/NAME`},
		{"a repository that is a path", []string{"--repo", "../x", "--file", "a"}, `--repo is "../x"`},
		{"a repository with three parts", []string{"--repo", "a/b/c", "--file", "a"}, `--repo is "a/b/c"`},
		{"a repository that walks up", []string{"--repo", "a/..", "--file", "a"}, `--repo is "a/.."`},
		{"a revision that walks up", []string{"--repo", "o/n", "--file", "a", "--revision", "a/../b"}, `--revision is "a/../b"`},
		{"an empty revision", []string{"--repo", "o/n", "--file", "a", "--revision", ""}, `--revision is ""`},
		{"a file twice", []string{"--repo", "o/n", "--file", "a", "--file", "a"}, `--file "a" is given twice`},
		{"a checksum of no file", []string{"--repo", "o/n", "--file", "a", "--sha256", "b=" + strings.Repeat("a", 64)}, `--sha256 names "b"`},
		{"half a checksum", []string{"--repo", "o/n", "--file", "a", "--sha256", "a=abc"}, "is not a SHA-256"},
		{"a checksum without a file", []string{"--repo", "o/n", "--file", "a", "--sha256", "abc"}, "is not of the form PATH=HEX"},
		{"a stray argument", []string{"--repo", "o/n", "--file", "a", "b"}, `unexpected argument "b"`},
		{"files and a selection", []string{"--repo", "o/n", "--file", "a", "--weights", "*"}, "do not name files with --file and --sha256 too"},
		{"a selection without weights", []string{"--repo", "o/n", "--include", "*.json"}, "--weights is missing"},
		{"a pattern that is none", []string{"--repo", "o/n", "--weights", "[a"}, `"[a" is not a pattern such as *.safetensors`},
		{"an empty pattern", []string{"--repo", "o/n", "--weights", ""}, `"" is not a pattern`},
		{"an unknown flag", []string{"--what"}, "flag provided but not defined"},
		{"nowhere", []string{"--repo", "o/n", "--file", "a", "--dest", ""}, "--dest or --for is empty"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := Parse(append([]string{"fetch"}, tc.args...), env(), io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestCheckPath(t *testing.T) {
	for _, tc := range []struct {
		reason, path string
		ok           bool
	}{
		{"a name", "a.gguf", true},
		{"a path", "q4/a-00001-of-00002.gguf", true},
		{"spaces and dots are harmless", "a b..c", true},
		{"empty", "", false},
		{"the volume itself", ".", false},
		{"absolute", "/etc/passwd", false},
		{"up", "../a", false},
		{"up from inside", "a/../../b", false},
		{"up and back", "a/../b", false},
		{"a double slash", "a//b", false},
		{"a trailing slash", "a/", false},
		{"a dot", "./a", false},
		{"a backslash", `a\b`, false},
		{"a line break", "a\nb", false},
		{"a NUL", "a\x00b", false},
		{"the agent's own names", "a.partial", false},
		{"the agent's own record", "a.partial.json", false},
		{"the agent's own marker", "a.verified", false},
		{"the agent's own list", ".modelberth-listing", false},
		{"too long", strings.Repeat("a", maxPath+1), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if err := CheckPath(tc.path); (err == nil) != tc.ok {
				t.Errorf("CheckPath(%q) = %v, want ok %t", tc.path, err, tc.ok)
			}
		})
	}
}
