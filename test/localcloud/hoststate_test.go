// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/localcloud/provider/v1alpha1"
	"github.com/modelberth/modelberth/test/localcloud/supervisor"
)

// hostState is all state of the host a cloud could leave a trace in.
type hostState struct {
	Mounts    []string
	Links     []string
	Cgroups   []string
	Firewall  []string
	Sysctls   map[string]string
	Processes []string
	StateDir  []string
}

func snapshot(t *testing.T, l layout.Layout) hostState {
	t.Helper()
	return hostState{
		Mounts:    hostMounts(t),
		Links:     hostLinks(t),
		Cgroups:   cloudCgroups(t, l),
		Firewall:  firewall(t),
		Sysctls:   sysctls(t),
		Processes: processesOf(t, l),
		StateDir:  glob(t, l.Root+"*"),
	}
}

// compare fails the test when the host is not as it was, or when anything still
// lives in one of the cloud's namespaces.
func (c *testCloud) compare(t *testing.T, before hostState, inside map[string]bool) {
	t.Helper()
	if diff := cmp.Diff(before, snapshot(t, c.layout)); diff != "" {
		t.Errorf("the host is not as it was before (-before +after):\n%s", diff)
	}
	if len(inside) == 0 {
		t.Error("no namespace of the cloud was seen, so nothing was checked")
	}
	// Not at once: an ended process stays listed until the host's init has seen it.
	await(t, 2*time.Second, func() error { return nobodyIn(inside) })
}

func hostMounts(t *testing.T) []string {
	t.Helper()
	var mounts []string
	for _, line := range lines(read(t, "/proc/self/mountinfo")) {
		fields := strings.Fields(line)
		mounts = append(mounts, strings.Join(slices.Concat(fields[3:6], fields[len(fields)-3:]), " "))
	}
	return mounts
}

func hostLinks(t *testing.T) []string {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	return names
}

// cloudCgroups lists the cloud's groups in every hierarchy, and the controllers a unified hierarchy's root hands
// down.
func cloudCgroups(t *testing.T, l layout.Layout) []string {
	t.Helper()
	found := slices.Concat(glob(t, "/sys/fs/cgroup/"+l.Cgroup()), glob(t, "/sys/fs/cgroup/*/"+l.Cgroup()))
	if data, err := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control"); err == nil {
		found = append(found, string(data))
	}
	return found
}

func firewall(t *testing.T) []string {
	t.Helper()
	counters := regexp.MustCompile(`\[\d+:\d+\]`)
	var rules []string
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		out, err := exec.Command(program).Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		for _, line := range lines(string(out)) {
			if !strings.HasPrefix(line, "#") {
				rules = append(rules, counters.ReplaceAllString(line, ""))
			}
		}
	}
	return rules
}

// sysctls reads the settings kubelet, kube-proxy or a router would change.
func sysctls(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, pattern := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_max*",
		"net/ipv4/ip_forward", "net/ipv4/conf/all/*", "net/netfilter/nf_conntrack_max", "net/bridge/*",
	} {
		for _, path := range glob(t, "/proc/sys/"+pattern) {
			values[path] = read(t, path)
		}
	}
	return values
}

// processesOf lists the processes of the state directory.
func processesOf(t *testing.T, l layout.Layout) []string {
	t.Helper()
	var found []string
	for _, path := range glob(t, "/proc/[0-9]*/cmdline") {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended between the listing and the look
		}
		if bytes.Contains(data, []byte(l.Root)) {
			found = append(found, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}

// namespaces returns the namespaces of the cloud's processes, without the host's.
func (c *testCloud) namespaces(t *testing.T) map[string]bool {
	t.Helper()
	recorded, err := process.Recorded(c.layout.Processes())
	if err != nil {
		t.Fatal(err)
	}
	inside := map[string]bool{}
	for _, id := range recorded {
		for kind, name := range namespacesOf(id.PID) {
			if name != namespacesOf(os.Getpid())[kind] {
				inside[name] = true
			}
		}
	}
	return inside
}

func namespacesOf(pid int) map[string]string {
	names := map[string]string{}
	for _, kind := range []string{"net", "mnt", "pid", "uts", "ipc"} {
		if name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind)); err == nil {
			names[kind] = name
		}
	}
	return names
}

// nobodyIn is an error as long as a process lives in one of the namespaces.
func nobodyIn(inside map[string]bool) error {
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	if err != nil {
		return err
	}
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && inside[name] {
			return fmt.Errorf("%s is %s, a namespace of the cloud", link, name)
		}
	}
	return nil
}

// populate fills the cloud: a machine bought through Karpenter, and a pod on it.
func (c *testCloud) populate(t *testing.T) {
	t.Helper()
	kube := c.kube(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	began := time.Now()
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "LocalNodeClass", Name: "default"},
			ExpireAfter:  karpv1.MustParseNillableDuration("Never"),
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{{
				Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"Standard_NC24ads_A100_v4"},
			}},
			Resources: karpv1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "pause", Image: supervisor.SandboxImage(),
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
		}}},
	}
	for _, object := range []client.Object{claim, pod} {
		err := process.Await(ctx, "the object to be accepted", 100*time.Millisecond, func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(kube.Create(ctx, object)) // the default ServiceAccount takes a moment
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	await(t, time.Minute, func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if !claim.StatusConditions().Root().IsTrue() {
			return fmt.Errorf("claim: %s", claim.StatusConditions().Root().Message)
		}
		return nil
	})
	t.Logf("NodeClaim to ready took %.1fs", time.Since(began).Seconds())
	await(t, time.Minute, func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod is %s", pod.Status.Phase)
		}
		return nil
	})
}

func (c *testCloud) kube(t *testing.T) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.layout.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // a rate limit would miss short-lived states
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
