// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/test/localcloud/internal/golden"
)

var update = flag.Bool("update", false, "write the golden files")

// course returns a course of 200 Workspaces; each reaches each stage a while after the one before.
func course(claimed, serving, ready float64) *Course {
	c := NewCourse("ns")
	for i := range 200 {
		name, start := fmt.Sprint(i), float64(i)
		c.Applied[name], c.Claimed[name] = at(start), at(start+claimed)
		c.Serving[name], c.Ready[name] = at(start+serving), at(start+ready)
	}
	return c
}

func TestFigures(t *testing.T) {
	good := Figures{
		Workspaces: 200, First: course(2, 23, 25), Load: course(1, 20, 21), Floor: course(0.1, 20, 0), Script: course(0.8, 21, 0),
		Requests: Tally{
			Writes: 2400, Reads: 600, Events: 800, Leases: 9, Watches: 12,
			Kinds: map[string]int{"patch workspaces/status": 800, "create nodeclaims": 200},
		},
		LoadWork:   Work{"kube-apiserver": 80 * time.Second, release: 15 * time.Second},
		FloorWork:  Work{"kube-apiserver": 70 * time.Second, "karpenter": 10 * time.Second},
		ScriptWork: Work{"kube-apiserver": 75 * time.Second, "karpenter": 9 * time.Second},
		Waited:     30 * time.Second, Peak: 186e6, Held: 149e6,
	}
	bad := good
	bad.Load = course(7, 24, 40)
	bad.Requests.Writes, bad.Requests.Reads, bad.Requests.Events = 2600, 700, 1200
	bad.Waiting = Tally{Writes: 1, Reads: 2, Events: 1, Kinds: map[string]int{"get nodes": 2, "patch workspaces/status": 1}}
	bad.Restart = Tally{Writes: 1, Kinds: map[string]int{"patch services": 1}}
	bad.Held = 151e6
	for name, test := range map[string]struct {
		figures Figures
		missed  int
	}{
		"within.txt": {good, 0},
		"over.txt":   {bad, 10},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := test.figures.Print(&out); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name, out.String(), *update)
			if got := test.figures.Missed(); got != test.missed {
				t.Errorf("%d figures exceed their budgets, want %d", got, test.missed)
			}
		})
	}
}

func TestWorkSince(t *testing.T) {
	before := Work{"etcd": 3 * time.Second, release: 9 * time.Second, "ended": time.Second}
	after := Work{"etcd": 5 * time.Second, release: 2 * time.Second, "new": time.Second}
	want := Work{"etcd": 2 * time.Second, release: 2 * time.Second, "new": time.Second} // the controller's replicas were replaced
	if diff := cmp.Diff(want, after.since(before)); diff != "" {
		t.Errorf("work (-want +got):\n%s", diff)
	}
}

func TestStandIn(t *testing.T) {
	const made = `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: ws-abc-0
  uid: 111
  resourceVersion: "5"
  generation: 1
  finalizers: [karpenter.sh/termination]
  labels: {modelberth.dev/workspace-uid: u-1, karpenter.kaito.sh/workspace-namespace: bench, app: bench-x}
  annotations: {karpenter.sh/do-not-disrupt: "true"}
spec:
  requirements:
  - {key: modelberth.dev/workspace-uid, operator: In, values: [u-1]}
  taints: [{key: sku, value: gpu}]
  replicas: 1
status:
  nodeName: n
`
	const want = `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: floor-ws-abc-0
  labels: {modelberth.dev/workspace-uid: floor-ws, karpenter.kaito.sh/workspace-namespace: bench-floor, app: bench-x}
  annotations: {karpenter.sh/do-not-disrupt: "true"}
spec:
  requirements:
  - {key: modelberth.dev/workspace-uid, operator: In, values: [floor-ws]}
  taints: [{key: sku, value: gpu}]
  replicas: 1
`
	before := decode(t, made)
	got := standIn(before, map[string]string{"bench": "bench-floor", "u-1": "floor-ws", "ws-abc-0": "floor-ws-abc-0"})
	if diff := cmp.Diff(decode(t, want).Object, got.Object); diff != "" {
		t.Errorf("stand-in (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(decode(t, made).Object, before.Object); diff != "" {
		t.Errorf("the original was changed (-want +got):\n%s", diff)
	}
}

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestLineOf(t *testing.T) {
	for _, test := range []struct {
		reason, line, status string
		want                 int64
		fails                bool
	}{
		{"what there is now", resident, "VmHWM:\t   53104 kB\nVmRSS:\t 100 kB\n", 100 << 10, false},
		{"as the kernel writes it", highWater, "Name:\tcontroller\nVmPeak:\t 9000 kB\nVmHWM:\t   53104 kB\nVmRSS:\t 100 kB\n", 53104 << 10, false},
		{"a kernel thread has none", highWater, "Name:\tkthreadd\n", 0, true},
		{"nonsense", highWater, "VmHWM:\tmany kB\n", 0, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := lineOf(test.status, test.line)
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("got %d, %v; want %d, an error: %t", got, err, test.want, test.fails)
			}
		})
	}
}
