// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/planner"
)

var update = flag.Bool("update", false, "write the golden files")

// plan returns the plan of a pod.
func plan() *planner.Plan {
	return &planner.Plan{
		Engine: "vllm", MaxModelLen: 16384, Concurrency: 4,
		Memory: &planner.Memory{Total: 79.15, Weights: 14.96, KVCache: 40, Overhead: 5.5, Basis: v1beta1.BasisEstimated},
	}
}

// TestSignatures pins the users' sentences for the built-in messages of engines.
func TestSignatures(t *testing.T) {
	data, err := os.ReadFile("signatures.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Rules []struct{ Name, Example string }
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	arm := node("node-a", corev1.NodeReady)
	arm.Status.NodeInfo.Architecture = "arm64"
	var out strings.Builder
	for _, rule := range doc.Rules {
		in := one(engine(waiting("CrashLoopBackOff", "back-off 10s"), terminated(1, "Error", rule.Example)))
		in.Signatures, in.Plan, in.Nodes = signatures(t), plan(), []corev1.Node{arm}
		got := diagnosis.Inference(in)
		fmt.Fprintf(&out, "## %s\n%s: %s\n\n", rule.Name, got.Reason, got.Message)
	}
	golden(t, "signatures.golden", out.String())
}

// golden compares text with a file of testdata, or writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; with -update it is written anew (-want +got):\n%s", path, diff)
	}
}

func TestParseRefuses(t *testing.T) {
	const good = `
- name: a
  source: s
  date: "2026-11-20"
  pattern: 'something (?P<what>\w+) happened'
  example: something bad happened
  reason: GPUUnusable
  says: "{what} in {pod}"
  next: mend it
`
	if _, err := diagnosis.Parse([]byte("rules:" + good)); err != nil {
		t.Fatalf("valid signatures: %v", err)
	}
	for _, tc := range []struct{ reason, from, to, want string }{
		{"a field that there is not", "next:", "then: x\n  next:", `signatures: error unmarshaling JSON: while decoding JSON: json: unknown field "then"`},
		{"no next step", "next: mend it", "next: ''", `rules[0] "a": name, source, says and next must be given`},
		{"a date that is none", "2026-11-20", "lately", `rules[0] "a": date: "lately" is not a date like 2026-08-20`},
		{"a reason that is not an engine's", "GPUUnusable", "PodEvicted", `rules[0] "a": reason: "PodEvicted" is not a reason that a signature may have`},
		{"a reason that there is not", "GPUUnusable", "Oops", `rules[0] "a": reason: "Oops" is not a reason that a signature may have`},
		{"figures that there are not", "next:", "compare: disk\n  next:", `rules[0] "a": compare: "disk" is neither memory nor cache`},
		{"a pattern that anything meets", `'something (?P<what>\w+) happened'`, `'\w+'`, `rules[0] "a": pattern: "\\w+" is too short to mean one thing`},
		{"a pattern that is none", `(?P<what>`, `(?P<what`, "rules[0] \"a\": pattern: error parsing regexp: invalid named capture: `(?P<what\\w+) happened`"},
		{"a group that there is not", "{what}", "{why}", `rules[0] "a": says, next: the pattern has no group "why"`},
		{"an example of something else", "something bad", "nothing bad", `rules[0] "a": example: the rule does not match it`},
		{"the same name twice", "next: mend it", "next: mend it" + good, `rules[1] "a": rules[0] has the same name`},
		{
			"an earlier rule for the same message", "next: mend it", "next: mend it" + strings.Replace(good, "name: a", "name: b", 1),
			`rules[1] "b": example: the earlier rule "a" matches it`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := diagnosis.Parse([]byte("rules:" + strings.Replace(good, tc.from, tc.to, 1)))
			if diff := cmp.Diff(tc.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
