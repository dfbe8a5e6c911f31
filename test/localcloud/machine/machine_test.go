// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/node"
	"github.com/modelberth/modelberth/test/localcloud/pki"
)

func testRunner(t *testing.T, root string) *Runner {
	t.Helper()
	authority, err := pki.NewAuthority("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &Runner{
		Layout: layout.Layout{Root: root}, Authority: authority, Self: "/proc/self/exe",
		BinDir: "/tools", SandboxImage: "pause", APIServer: "https://api",
	}
}

func TestConfig(t *testing.T) {
	r := testRunner(t, "/state")
	network, err := layout.NetworkOf(1)
	if err != nil {
		t.Fatal(err)
	}
	taints := []corev1.Taint{{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	sold := cloud.Machine{
		Request: cloud.Request{Name: "gpu", Taints: taints}, ID: "m-1", ProviderID: "local://m-1",
		GPUs: 2, GPUResource: "nvidia.com/gpu", CPUs: 48, MemoryGiB: 440, Network: network,
	}
	system := sold
	system.System = true
	want := node.Config{
		Name: "gpu", ProviderID: "local://m-1", Disk: "/state/nodes/gpu", BinDir: "/tools", Cgroup: r.Layout.Cgroup() + "/gpu",
		Network: network, Labels: map[string]string{"a": "b"}, Taints: taints, GPUs: 2, GPUResource: "nvidia.com/gpu",
		CPUs: 48, MemoryGiB: 440, SandboxImage: "pause", APIServer: "https://api", Authority: r.Authority.Cert,
	}
	ownless := want
	ownless.ProviderID = ""
	for _, test := range []struct {
		reason  string
		machine cloud.Machine
		want    node.Config
	}{
		{"a machine that was sold", sold, want},
		{"the cloud's own has nothing that Karpenter could look up", system, ownless},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := r.config(test.machine, map[string]string{"a": "b"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(node.Config{}, "Kubelet", "Proxy")); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
			checkKubelet(t, got.Kubelet, network.Address)
		})
	}
}

// checkKubelet holds the kubelet's certificate against the API server's demands, as a client and as a server.
func checkKubelet(t *testing.T, pair pki.Pair, address string) {
	t.Helper()
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	subject := loaded.Leaf.Subject
	if subject.CommonName != "system:node:gpu" || !cmp.Equal(subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the node authorizer sees %s of %v, want system:node:gpu of system:nodes", subject.CommonName, subject.Organization)
	}
	if err := loaded.Leaf.VerifyHostname(address); err != nil {
		t.Errorf("the API server would not fetch logs from it: %v", err)
	}
}

func TestLogsOutliveTheNode(t *testing.T) {
	r := testRunner(t, t.TempDir())
	for _, content := range []string{"first", "second"} {
		if err := os.MkdirAll(r.Layout.NodeLogs("gpu"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(r.Layout.Logs(), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.Layout.Log("gpu/kubelet"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := r.keepLogs("gpu"); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(r.Layout.EndedNodeLogs("gpu"), "kubelet.log"))
		if err != nil || string(got) != content {
			t.Errorf("kept %q, %v; want %q", got, err, content)
		}
	}
	if err := r.keepLogs("never-started"); err != nil {
		t.Errorf("a node without logs: %v", err)
	}
}
