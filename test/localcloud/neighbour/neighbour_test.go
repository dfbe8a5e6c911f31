// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"flag"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/test/localcloud/internal/golden"
)

var update = flag.Bool("update", false, "write the golden files")

func TestPrint(t *testing.T) {
	course := func(shape string, waits ...int) Course {
		c := Course{Shape: shape}
		for i, s := range waits {
			times := Times{Claimed: time.Duration(s-1) * time.Second, Running: time.Duration(s) * time.Second}
			if i == len(waits)-1 {
				times.Removed = time.Duration(s+20) * time.Second
			}
			c.Rounds = append(c.Rounds, times)
		}
		return c
	}
	figures := Figures{Courses: []Course{
		course("no GPU machine", 4, 3, 5), course("as much as may be", 9, 8, 10), course("too much", 62, 61, 9), {Shape: "broken off"},
	}}
	var out strings.Builder
	if err := figures.Print(&out); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "figures.txt", out.String(), *update)
	if got := figures.Missed(); got != 1 {
		t.Errorf("%d shapes are over the budget, want 1", got)
	}
}

func TestLoad(t *testing.T) {
	scene, err := Load(regexp.MustCompile("^static"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, shape := range scene.Shapes {
		got = append(got, shape.Name)
	}
	for i := range scene.Neighbours {
		got = append(got, scene.Neighbours[i].GetName())
	}
	if diff := cmp.Diff([]string{"no GPU machine", "static NodePool (Azure)", waitingPool, emptiedPool, "parked"}, got); diff != "" {
		t.Errorf("the cluster without a GPU machine comes first (-want +got):\n%s", diff)
	}
}

func TestShapesAreApart(t *testing.T) {
	scene, err := Load(regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	if scene.Shapes[0].Cloud != nil || len(scene.Shapes[0].Objects) > 0 {
		t.Errorf("%q asks for something", scene.Shapes[0].Name)
	}
	seen := map[string]bool{}
	for _, shape := range scene.Shapes[1:] {
		if seen[shape.Name] || shape.Cloud == nil || len(shape.Objects) == 0 {
			t.Errorf("%q comes twice, or lacks a cloud or objects", shape.Name)
		}
		seen[shape.Name] = true
		for _, object := range shape.Objects {
			if pool := object.GetLabels()["karpenter.sh/nodepool"]; pool == waitingPool || pool == emptiedPool {
				t.Errorf("%q: %s %s is in the neighbours' pool %s", shape.Name, object.GetKind(), object.GetName(), pool)
			}
		}
	}
}
