// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/test/localcloud/internal/golden"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/pki"
)

var update = flag.Bool("update", false, "write the golden files")

func testConfig(t *testing.T) Config {
	t.Helper()
	network, err := layout.NetworkOf(3)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Name:         "gpu-a",
		ProviderID:   "local://m-000004",
		Disk:         "/state/nodes/gpu-a",
		BinDir:       "/tools",
		Cgroup:       "modelberth-local-00000000/gpu-a",
		Network:      network,
		Labels:       map[string]string{"b": "2", "a": "1"},
		Taints:       []corev1.Taint{{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
		GPUs:         1,
		GPUResource:  "nvidia.com/gpu",
		SandboxImage: "registry.local:5000/modelberth/pause:dev",
		APIServer:    "https://10.231.0.1:6443",
		Authority:    []byte("authority\n"),
		Kubelet:      pki.Pair{Cert: []byte("kubelet certificate\n"), Key: []byte("kubelet key\n")},
		Proxy:        pki.Pair{Cert: []byte("proxy certificate\n"), Key: []byte("proxy key\n")},
	}
}

func TestFiles(t *testing.T) {
	rendered, err := files(testConfig(t), true)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range rendered {
		fmt.Fprintf(&out, "==> %s (%o)\n%s\n", f.Path, f.Mode, strings.TrimRight(string(f.Data), "\n"))
	}
	golden.Check(t, "files.txt", out.String(), *update)
}

func TestOnlyTheRestrictedRuntimeIsRestricted(t *testing.T) {
	with, without := containerdConfig(testConfig(t), true), containerdConfig(testConfig(t), false)
	const setting = "restrict_oom_score_adj = %t"
	if !bytes.Contains(with, fmt.Appendf(nil, setting, true)) || !bytes.Contains(without, fmt.Appendf(nil, setting, false)) {
		t.Errorf("containerd is configured with:\n%s\nand without:\n%s", with, without)
	}
}

func TestCommands(t *testing.T) {
	c := testConfig(t)
	var out strings.Builder
	for _, command := range []struct{ Path, Args string }{
		{containerdCommand().Path, strings.Join(containerdCommand().Args, "\n  ")},
		{kubeletCommand(c).Path, strings.Join(kubeletCommand(c).Args, "\n  ")},
		{proxyCommand().Path, strings.Join(proxyCommand().Args, "\n  ")},
	} {
		fmt.Fprintf(&out, "%s\n  %s\n", command.Path, command.Args)
	}
	golden.Check(t, "commands.txt", out.String(), *update)
}

func TestConfigTravels(t *testing.T) {
	var wire bytes.Buffer
	want := testConfig(t)
	if err := want.Send(&wire); err != nil {
		t.Fatal(err)
	}
	got, err := ReadConfig(&wire)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the configuration that arrives (-sent +received):\n%s", diff)
	}
	if _, err := ReadConfig(strings.NewReader("")); err == nil {
		t.Error("a supervisor that hung up is taken for a configuration")
	}
}

// TestDisksAreTheNodesOwn checks that a node can change its own directory and nothing else of the host.
func TestDisksAreTheNodesOwn(t *testing.T) {
	c := testConfig(t)
	for source := range c.disks() {
		if !strings.HasPrefix(source, c.Disk+"/") {
			t.Errorf("the node writes to %s of the host, which is not below its own %s", source, c.Disk)
		}
	}
}
