// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNew(t *testing.T) {
	for _, test := range []struct {
		reason, root string
		wantErr      string
	}{
		{reason: "an absolute directory is fine", root: "/var/lib/x"},
		{reason: "commands run in different directories, so a relative path would mean two places", root: "x", wantErr: "not an absolute path"},
		{reason: "down deletes the directory", root: "/", wantErr: "state directory is /"},
		{reason: "and does so however it is written", root: "/../.", wantErr: "state directory is /"},
		{reason: "a unix socket's path is short", root: "/" + strings.Repeat("x", 100), wantErr: "choose a shorter --state-dir"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			_, err := New(test.root)
			if test.wantErr == "" && err != nil {
				t.Fatalf("New(%q): %v", test.root, err)
			}
			if test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("New(%q) says %v, want something with %q", test.root, err, test.wantErr)
			}
		})
	}
}

func TestCloudsOfTwoCheckoutsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, cloud := range []struct{ checkout, name string }{{"/a", "demo"}, {"/a", "e2e"}, {"/b", "demo"}, {"/b", "e2e"}} {
		l, err := Of(cloud.checkout, cloud.name)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Of(cloud.checkout, cloud.name)
		if err != nil || again != l {
			t.Errorf("cloud %v is in %s, and when asked again in %s, %v", cloud, l.Root, again.Root, err)
		}
		if !strings.HasSuffix(l.Root, "-"+cloud.name) {
			t.Errorf("the directory %s does not say that it is cloud %s", l.Root, cloud.name)
		}
		for what, value := range map[string]string{"directory": l.Root, "socket": l.Socket(), "lock": l.Use(), "control group": l.Cgroup()} {
			if seen[what+value] != "" {
				t.Errorf("clouds %v and %s share the %s %s", cloud, seen[what+value], what, value)
			}
			seen[what+value] = cloud.checkout + " " + cloud.name
		}
	}
}

func TestOfRefusesNamesThatLeadElsewhere(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "A", "-a", "a b", "a\n"} {
		if l, err := Of("/a", name); err == nil || !strings.Contains(err.Error(), "lower-case letters") {
			t.Errorf("name %q gives %q, %v; want that it is refused", name, l.Root, err)
		}
	}
}

func TestLog(t *testing.T) {
	l := Layout{Root: "/s"}
	got := map[string]string{}
	for _, component := range []string{"etcd", "gpu-a/kubelet"} {
		got[component] = l.Log(component)
	}
	want := map[string]string{"etcd": "/s/logs/etcd.log", "gpu-a/kubelet": "/s/nodes/gpu-a/logs/kubelet.log"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log files (-want +got):\n%s", diff)
	}
}

func TestCgroupsOfTwoCloudsDiffer(t *testing.T) {
	a, b := Layout{Root: "/a"}.Cgroup(), Layout{Root: "/b"}.Cgroup()
	if a == b {
		t.Errorf("clouds in /a and /b share the control group %s, so one would end the other's nodes", a)
	}
	if !strings.HasPrefix(a, "modelberth-local-") {
		t.Errorf("control group %s does not say whose it is", a)
	}
}

func TestNetworkOf(t *testing.T) {
	for _, test := range []struct {
		reason string
		slot   int
		want   NodeNetwork
		fails  bool
	}{
		{reason: "the first node keeps clear of the bridge's address", slot: 0, want: NodeNetwork{Slot: 0, Address: "10.231.0.10", PodCIDR: "10.244.0.0/24"}},
		{reason: "the last one is still inside both networks", slot: MaxSlots - 1, want: NodeNetwork{Slot: 199, Address: "10.231.0.209", PodCIDR: "10.244.199.0/24"}},
		{reason: "beyond the last there is none", slot: MaxSlots, fails: true},
		{reason: "nor before the first", slot: -1, fails: true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := NetworkOf(test.slot)
			if (err != nil) != test.fails {
				t.Fatalf("NetworkOf(%d): error %v, want one: %v", test.slot, err, test.fails)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("NetworkOf(%d) (-want +got):\n%s", test.slot, diff)
			}
		})
	}
}

func TestNextSlot(t *testing.T) {
	all := map[int]bool{}
	for slot := range MaxSlots {
		all[slot] = true
	}
	for _, test := range []struct {
		reason string
		used   map[int]bool
		last   int
		want   int
		fails  bool
	}{
		{reason: "the first node takes the first slot", last: -1, want: 0},
		{reason: "a slot that was just given up rests", used: map[int]bool{0: true}, last: 1, want: 2},
		{reason: "slots in use are skipped", used: map[int]bool{2: true, 3: true}, last: 1, want: 4},
		{reason: "after the last comes the first", last: MaxSlots - 1, want: 0},
		{reason: "with only the last one free, that", used: map[int]bool{0: true}, last: MaxSlots - 2, want: MaxSlots - 1},
		{reason: "with none free, an error", used: all, last: 3, fails: true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := NextSlot(test.used, test.last)
			if (err != nil) != test.fails {
				t.Fatalf("error %v, want one: %v", err, test.fails)
			}
			if got != test.want {
				t.Errorf("got slot %d, want %d", got, test.want)
			}
		})
	}
}
