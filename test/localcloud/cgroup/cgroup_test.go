// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const other = "22 28 0:20 / /proc rw - proc proc rw\n"
	for _, test := range []struct {
		reason, mountinfo string
		want              []Hierarchy
		unified, fails    bool
	}{
		{
			reason:    "a host of today",
			mountinfo: other + "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			want:      []Hierarchy{{Dir: "/sys/fs/cgroup", V2: true}}, unified: true,
		},
		{
			reason: "an old one, with the new hierarchy on the side",
			mountinfo: "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
				"31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
				"32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
				"33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
			want: []Hierarchy{
				{Dir: "/sys/fs/cgroup/unified", V2: true},
				{Dir: "/sys/fs/cgroup/cpuset", CPUSet: true},
				{Dir: "/sys/fs/cgroup/cpu,cpuacct"},
			},
		},
		{reason: "none at all", mountinfo: other, fails: true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := parse(strings.NewReader(test.mountinfo))
			if (err != nil) != test.fails {
				t.Fatalf("error %v, want one: %v", err, test.fails)
			}
			if diff := cmp.Diff(test.want, got.Hierarchies); diff != "" {
				t.Errorf("hierarchies (-want +got):\n%s", diff)
			}
			if got.Unified() != test.unified {
				t.Errorf("Unified() = %v, want %v", got.Unified(), test.unified)
			}
		})
	}
}

// write makes the files of a pretended cgroup file system.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestCreateInOldHierarchies needs no kernel: the files of a cpuset group are
// there before, as the kernel makes them with the directory.
func TestCreateInOldHierarchies(t *testing.T) {
	dir := t.TempDir()
	cpuset, memory, unified := filepath.Join(dir, "cpuset"), filepath.Join(dir, "memory"), filepath.Join(dir, "unified")
	write(t, cpuset, map[string]string{"cpuset.cpus": "0-1\n", "cpuset.mems": "0\n"})
	for _, group := range []string{"a", "a/b"} {
		write(t, filepath.Join(cpuset, group), map[string]string{"cpuset.cpus": "", "cpuset.mems": ""})
	}
	write(t, memory, nil)
	write(t, unified, nil)
	host := Host{Hierarchies: []Hierarchy{{Dir: unified, V2: true}, {Dir: cpuset, CPUSet: true}, {Dir: memory}}}
	if err := host.Create("a/b"); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(cpuset, "a/b/cpuset.cpus")); got != "0-1" {
		t.Errorf("the group may run on %q, want what its parent has: a group without processors takes no process", got)
	}
	if _, err := os.Stat(filepath.Join(memory, "a/b")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(unified, "a")); err == nil {
		t.Error("a group was made in the hierarchy that holds no controller a kubelet would use")
	}
	if err := host.Create("a/b"); err != nil {
		t.Errorf("making it again: %v", err)
	}
}

func TestCreateInUnifiedHierarchy(t *testing.T) {
	root := t.TempDir()
	files := map[string]string{"cgroup.controllers": "cpuset cpu io memory pids", subtreeControl: "memory pids"}
	write(t, root, files)
	write(t, filepath.Join(root, "a"), map[string]string{"cgroup.controllers": "cpuset cpu memory pids", subtreeControl: ""})
	host := Host{Hierarchies: []Hierarchy{{Dir: root, V2: true}}}
	if err := host.Create("a"); err != nil {
		t.Fatal(err)
	}
	// A plain file holds the last of the writes, each at its start, while the kernel's would have added them up: cpu,
	// then cpuset; and for a new group all four.
	if got := readFile(t, filepath.Join(root, subtreeControl)); !strings.HasPrefix(got, "+cpuset") {
		t.Errorf("the root gives its children %q, want cpuset last", got)
	}
	if got := readFile(t, filepath.Join(root, "a", subtreeControl)); !strings.HasPrefix(got, "+pids") {
		t.Errorf("the group gives its children %q, want pids last", got)
	}
}

func TestRemove(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(first, "a", "b", "c"), filepath.Join(first, "other"), filepath.Join(second, "a")} {
		write(t, dir, nil)
	}
	host := Host{Hierarchies: []Hierarchy{{Dir: first}, {Dir: second, V2: true}}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := host.Remove(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := host.Remove(ctx, "a"); err != nil {
		t.Errorf("removing it again: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(first, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join(first, "other")}, left); diff != "" {
		t.Errorf("groups left (-want +got):\n%s", diff)
	}
}

func TestRemoveGivesUpWithItsContext(t *testing.T) {
	root := t.TempDir()
	// Unlike a control group, a directory with a file in it cannot be removed.
	write(t, filepath.Join(root, "a"), map[string]string{"file": ""})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := (Host{Hierarchies: []Hierarchy{{Dir: root}}}).Remove(ctx, "a")
	if err == nil || !strings.Contains(err.Error(), "removing cgroup a") {
		t.Errorf("error %v, want one that names the group", err)
	}
}

func TestControllers(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{subtreeControl: "cpu io memory pids"})
	host := Host{Hierarchies: []Hierarchy{{Dir: root, V2: true}}}
	path := filepath.Join(t.TempDir(), "saved")
	if _, saved, err := LoadControllers(path); saved || err != nil {
		t.Errorf("before anything was saved: %v, %v", saved, err)
	}
	if err := SaveControllers(path, []string{"io", "memory", "pids"}); err != nil {
		t.Fatal(err)
	}
	before, saved, err := LoadControllers(path)
	if err != nil || !saved {
		t.Fatalf("after saving: %v, %v", saved, err)
	}
	if err := host.RestoreControllers(before); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(root, subtreeControl)); !strings.HasPrefix(got, "-cpu") {
		t.Errorf("the root's controllers were told %q, want only that cpu goes", got)
	}
	old := Host{Hierarchies: []Hierarchy{{Dir: "/nowhere"}}}
	if got, err := old.Controllers(); err != nil || len(got) > 0 {
		t.Errorf("an old host's controllers are %v, %v; want none", got, err)
	}
}
