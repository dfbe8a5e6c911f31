// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/modelberth/modelberth/test/localcloud/internal/golden"
	"github.com/modelberth/modelberth/test/localcloud/layout"
)

var update = flag.Bool("update", false, "write the golden files")

func testPlan(root string) Plan {
	return Plan{Layout: layout.Layout{Root: root}, Programs: Programs{BinDir: "/tools", CoreDNS: "/tools/coredns", Self: "/proc/self/exe"}, InFlight: 32, Hollow: true}
}

func TestPrograms(t *testing.T) {
	p := testPlan("/state")
	var out strings.Builder
	for _, program := range []Program{p.Etcd(), p.APIServer(), p.ControllerManager(), p.Scheduler(), p.CoreDNS(), p.Karpenter(), p.HollowKubelets()} {
		fmt.Fprintf(&out, "==> %s\nlog:   %s\nready: %+v\nenv:   %s\n%s\n  %s\n\n", program.Name, program.Log, program.Ready,
			strings.Join(program.Env, " "), program.Path, strings.Join(program.Args, "\n  "))
	}
	golden.Check(t, "programs.txt", out.String(), *update)
}

func TestCorefile(t *testing.T) {
	golden.Check(t, "Corefile", string(testPlan("/state").corefile()), *update)
}

// TestWriteFiles checks the existence of every file named in a program's flags.
func TestWriteFiles(t *testing.T) {
	p := testPlan(t.TempDir())
	ca, err := p.WriteFiles("https://127.0.0.1:1234", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []Program{p.Etcd(), p.APIServer(), p.ControllerManager(), p.Scheduler(), p.CoreDNS(), p.Karpenter(), p.HollowKubelets()} {
		for _, setting := range append(program.Args, program.Env...) {
			_, path, _ := strings.Cut(setting, "=")
			isFile := strings.HasPrefix(path, p.Layout.PKI()) || strings.HasPrefix(path, p.Layout.Config())
			if _, err := os.Stat(path); isFile && err != nil {
				t.Errorf("%s is told %s: %v", program.Name, setting, err)
			}
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.Layout.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:1234" {
		t.Errorf("the host's kubeconfig leads to %s", config.Host)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	if !roots.AppendCertsFromPEM(config.CAData) {
		t.Error("the host's kubeconfig trusts nobody")
	}
	info, err := os.Stat(filepath.Join(p.Layout.PKI(), "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("everybody may read the authority's key: %v", info.Mode())
	}
}
