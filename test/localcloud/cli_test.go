// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/internal/golden"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/localcloud/supervisor"
)

var update = flag.Bool("update", false, "write the golden files")

func testStatus(began time.Time) supervisor.Status {
	network, _ := layout.NetworkOf(1) // slot 1 is in range
	return supervisor.Status{
		Ready: true, Stage: "ready", Started: began, APIServer: "https://127.0.0.1:1234", Kubeconfig: "/state/kubeconfig",
		Components: []process.State{
			{Name: "etcd", Running: true, PID: 11, Since: began},
			{Name: "coredns", Since: began, Restarts: 2, LastExit: "exit status 1"},
		},
		Machines: []supervisor.MachineStatus{
			{Machine: cloud.Machine{Request: cloud.Request{Name: "system"}, ID: "m-000001", State: cloud.Running, Created: began, System: true}, Node: "Ready"},
			{Machine: cloud.Machine{
				Request: cloud.Request{Name: "gpu", SKU: "Standard_NC24ads_A100_v4", Zone: "eastus-1", CapacityType: "spot"},
				ID:      "m-000002", State: cloud.Starting, Created: began, Network: network,
			}},
		},
	}
}

func TestPrintStatus(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var out bytes.Buffer
	if err := printStatus(&out, testStatus(began), began.Add(90*time.Second)); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "status.txt", out.String(), *update)
}

func TestNarrator(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	n := newNarrator(&out, now)
	n.now = func() time.Time { return now }
	for _, step := range []struct {
		after  time.Duration
		status supervisor.Status
	}{
		{0, supervisor.Status{Stage: "network"}},
		{time.Second, supervisor.Status{Stage: "API server", Waiting: "etcd"}},
		{time.Second, supervisor.Status{Stage: "API server", Waiting: "etcd", Answer: "connection refused"}},
		{5 * time.Second, supervisor.Status{Stage: "API server", Waiting: "etcd", Answer: "connection refused"}},
		{time.Second, supervisor.Status{Stage: "API server", Waiting: "kube-apiserver"}},
		{time.Second, supervisor.Status{Stage: "ready", Ready: true, Kubeconfig: "/state/kubeconfig"}},
	} {
		now = now.Add(step.after)
		n.status(step.status)
		if step.status.Ready {
			n.ready(step.status)
		}
	}
	const want = `[  1.0s] API server: waiting for etcd
[  7.0s] API server: waiting for etcd (connection refused)
[  8.0s] API server: waiting for kube-apiserver
[  9.0s] ready
export KUBECONFIG=/state/kubeconfig
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("1\n2\n3\n4\n5\n6\n7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := string(tail(path)); got != "3\n4\n5\n6\n7" {
		t.Errorf("got %q, want the last five lines", got)
	}
	if got := string(tail(path + "x")); !strings.Contains(got, "no such file") {
		t.Errorf("without a log it says %q", got)
	}
}

// TestPreflight gives none of up's needs and expects all complaints at once.
func TestPreflight(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("says only that it must be root")
	}
	err := preflight(&settings{binDir: t.TempDir(), coreDNS: "/does/not/exist"})
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, want := range []string{
		"flag --coredns: stat /does/not/exist", "flag --skus is required", "flag --pause-image is required",
		"program of --bin-dir: stat", "kube-apiserver", "kubelet",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q:\n%v", want, err)
		}
	}
}

func TestSettingsForTheSupervisor(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("KUBE_BIN", "/tools/kube")
	t.Setenv("COREDNS", "relative/coredns")
	t.Setenv("IMAGES", "/cache/images")
	s := &settings{}
	s.register(&cobra.Command{})
	got, err := s.args()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--api-port=0", "--in-flight=0", "--hollow=false", "--bin-dir=/tools/kube", "--coredns=" + dir + "/relative/coredns",
		"--skus=" + dir + "/presets/skus", "--pause-image=/cache/images/pause.tar",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the supervisor is told (-want +got):\n%s", diff)
	}
	serve := newServeCommand(&stateFlag{})
	if err := serve.ParseFlags(got); err != nil {
		t.Errorf("serve does not take what up passes on: %v", err)
	}
}

func TestCommandsWithoutACloud(t *testing.T) {
	for _, test := range []struct {
		reason  string
		args    []string
		wantErr string
	}{
		{"status of nothing", []string{"status"}, "start one with up"},
		{"access to nothing", []string{"kubeconfig"}, "start one with up"},
		{"push to nowhere", []string{"push", "x.tar"}, "opening image"},
		{"log of nothing", []string{"logs", "etcd"}, `no log of "etcd"`},
		{"one name for two images", []string{"push", "--as", "a:b", "x.tar", "y.tar"}, "--as names one image"},
		{"a relative state directory", []string{"status", "--state-dir", "here"}, "not an absolute path"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			root := newRootCommand()
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&out)
			// The last --state-dir counts.
			root.SetArgs(append([]string{"--state-dir", t.TempDir()}, test.args...))
			err := root.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("got %v, want something with %q", err, test.wantErr)
			}
		})
	}
}

func TestLogs(t *testing.T) {
	l := layout.Layout{Root: t.TempDir()}
	for component, content := range map[string]string{"etcd": "etcd says", "gpu-a/kubelet": "kubelet says"} {
		if err := os.MkdirAll(filepath.Dir(l.Log(component)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l.Log(component), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{"logs", component, "--state-dir", l.Root})
		if err := root.ExecuteContext(t.Context()); err != nil || out.String() != content {
			t.Errorf("logs %s prints %q, %v", component, out.String(), err)
		}
	}
	if err := os.Rename(l.NodeLogs("gpu-a"), l.EndedNodeLogs("gpu-a")); err != nil {
		t.Fatal(err)
	}
	if f, err := openLog(l, "gpu-a/kubelet"); err != nil {
		t.Errorf("the log of a node that is gone: %v", err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"etcd", "gpu-a/kubelet"}, logNames(l)); diff != "" {
		t.Errorf("what logs offers (-want +got):\n%s", diff)
	}
}
