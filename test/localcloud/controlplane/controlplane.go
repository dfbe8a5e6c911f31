// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane renders the inputs of the control plane's programs: certificates, access files, configuration
// and command lines. It decides their settings and addresses. It must not start them or know their machine.
package controlplane

import (
	"fmt"
	"path/filepath"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// Names of the control plane's programs, as status and logs show them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	CoreDNS           = "coredns"
	Karpenter         = "karpenter"
	Hollow            = "hollow"
)

// Hidden commands of this program: one becomes Karpenter, one the kubelet of nodes without a machine.
const (
	KarpenterCommand = "karpenter"
	HollowCommand    = "hollow"
)

// If the programs answer inside the private network.
const (
	etcdURL     = "http://127.0.0.1:2379"
	etcdPeerURL = "http://127.0.0.1:2380"
	healthHost  = "127.0.0.1"
	// hub and registry share the address with these, so they keep off their ports.
	karpenterMetricsPort = 8090
	karpenterHealthPort  = 8091
	corednsReadyPort     = 8181
	hollowHealthPort     = 8092
)

// APIServerURL returns the API server's URL inside the private network.
func APIServerURL() string {
	return fmt.Sprintf("https://%s:%d", layout.ControlAddress, layout.APIServerPort)
}

// Programs holds the paths of the executables.
type Programs struct {
	// BinDir holds etcd and the Kubernetes programs.
	BinDir  string
	CoreDNS string
	// Self is this program's own file.
	Self string
}

// Plan renders command lines for one cloud.
type Plan struct {
	Layout   layout.Layout
	Programs Programs
	// AuditPolicy is the file of the API server's audit policy; empty means our own.
	AuditPolicy string
	// InFlight is how many requests the API server serves at once; 0 means its default.
	InFlight int
	// Hollow makes nodes mere objects, without machines.
	Hollow bool
}

// Probe is the readiness probe of a program.
type Probe struct {
	// Address is inside the private network.
	Address string
	Path    string
	// TLS means the answer comes encrypted. The client does not verify its sender, because the network is private and
	// the answer has no secret.
	TLS bool
}

// Program is one program of the control plane.
type Program struct {
	process.Command
	Ready Probe
}

func (p Plan) program(name, path string, ready Probe, args ...string) Program {
	return Program{
		Command: process.Command{
			Name: name,
			Path: path,
			Args: args,
			Env:  process.Environment(),
			Dir:  p.Layout.Root,
			Log:  p.Layout.Log(name),
		},
		Ready: ready,
	}
}

func (p Plan) kubernetes(name string, ready Probe, args ...string) Program {
	return p.program(name, filepath.Join(p.Programs.BinDir, name), ready, args...)
}

// Etcd stores everything and loses it with the cloud, so it never waits for the disk.
func (p Plan) Etcd() Program {
	return p.kubernetes(Etcd, Probe{Address: "127.0.0.1:2379", Path: "/health"},
		"--name=local",
		"--data-dir="+p.Layout.Etcd(),
		"--unsafe-no-fsync",
		"--listen-client-urls="+etcdURL,
		"--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+etcdPeerURL,
		"--initial-advertise-peer-urls="+etcdPeerURL,
		"--initial-cluster=local="+etcdPeerURL,
		"--log-level=warn",
	)
}

// APIServer reaches webhooks and aggregated APIs by their endpoints: it runs without a kube-proxy.
func (p Plan) APIServer() Program {
	ready := Probe{Address: fmt.Sprintf("%s:%d", layout.ControlAddress, layout.APIServerPort), Path: "/readyz", TLS: true}
	program := p.kubernetes(APIServer, ready,
		"--advertise-address="+layout.ControlAddress,
		fmt.Sprintf("--secure-port=%d", layout.APIServerPort),
		"--etcd-servers="+etcdURL,
		"--service-cluster-ip-range="+layout.ServiceNetwork,
		"--client-ca-file="+p.cert(authority),
		"--tls-cert-file="+p.cert(serving),
		"--tls-private-key-file="+p.key(serving),
		"--kubelet-client-certificate="+p.cert(kubeletClient),
		"--kubelet-client-key="+p.key(kubeletClient),
		"--kubelet-certificate-authority="+p.cert(authority),
		"--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file="+p.cert(aggregator),
		"--proxy-client-key-file="+p.key(aggregator),
		"--requestheader-client-ca-file="+p.cert(authority),
		"--requestheader-allowed-names="+aggregatorUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc."+layout.ClusterDomain,
		"--service-account-key-file="+p.cert(tokens),
		"--service-account-signing-key-file="+p.key(tokens),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-aggregator-routing=true",
		"--allow-privileged=true",
		"--audit-policy-file="+p.auditPolicy(),
		"--audit-log-path="+p.Layout.Log(auditLog),
		// One file, however long: a count must not miss a part.
		"--audit-log-maxsize=100000",
		"--profiling=false",
	)
	if p.InFlight > 0 { // a third of them writes, as in its defaults; it adds them up
		program.Args = append(program.Args,
			fmt.Sprintf("--max-mutating-requests-inflight=%d", p.InFlight/3), fmt.Sprintf("--max-requests-inflight=%d", p.InFlight-p.InFlight/3))
	}
	return program
}

// ControllerManager leaves addresses to the cloud: the cloud gives each node its range.
func (p Plan) ControllerManager() Program {
	program := p.kubernetes(ControllerManager, Probe{Address: healthHost + ":10257", Path: "/healthz", TLS: true},
		"--kubeconfig="+p.kubeconfig(ControllerManager),
		"--authentication-kubeconfig="+p.kubeconfig(ControllerManager),
		"--authorization-kubeconfig="+p.kubeconfig(ControllerManager),
		"--bind-address="+healthHost,
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+p.key(tokens),
		"--root-ca-file="+p.cert(authority),
		"--cluster-signing-cert-file="+p.cert(authority),
		"--cluster-signing-key-file="+p.key(authority),
		"--allocate-node-cidrs=false",
		"--controllers=*,-node-ipam-controller,-node-route-controller,-service-lb-controller,-cloud-node-lifecycle-controller",
		"--kube-api-qps=100",
		"--kube-api-burst=200",
		"--profiling=false",
	)
	if p.Hollow {
		// No kubelet is there to be heard of again.
		program.Args = append(program.Args, "--node-monitor-grace-period=24h")
	}
	return program
}

// Scheduler runs with its defaults.
func (p Plan) Scheduler() Program {
	return p.kubernetes(Scheduler, Probe{Address: healthHost + ":10259", Path: "/readyz", TLS: true},
		"--kubeconfig="+p.kubeconfig(Scheduler),
		"--authentication-kubeconfig="+p.kubeconfig(Scheduler),
		"--authorization-kubeconfig="+p.kubeconfig(Scheduler),
		"--bind-address="+healthHost,
		"--leader-elect=false",
		"--profiling=false",
	)
}

// CoreDNS answers for the cluster's names and for the cloud's own hosts.
func (p Plan) CoreDNS() Program {
	return p.program(CoreDNS, p.Programs.CoreDNS, Probe{Address: fmt.Sprintf("%s:%d", healthHost, corednsReadyPort), Path: "/ready"},
		"-conf="+filepath.Join(p.Layout.Config(), "Corefile"),
	)
}

// Karpenter is the real controllers with the local cloud as their provider.
func (p Plan) Karpenter() Program {
	program := p.program(Karpenter, p.Programs.Self, Probe{Address: fmt.Sprintf("%s:%d", healthHost, karpenterHealthPort), Path: "/readyz"},
		KarpenterCommand, "--socket="+p.Layout.Socket(),
	)
	program.Env = append(program.Env,
		"KUBECONFIG="+p.kubeconfig(Karpenter),
		"DISABLE_LEADER_ELECTION=true",
		fmt.Sprintf("METRICS_PORT=%d", karpenterMetricsPort),
		fmt.Sprintf("HEALTH_PROBE_PORT=%d", karpenterHealthPort),
		"FEATURE_GATES=StaticCapacity=true",
	)
	return program
}

// HollowKubelets acts for the object-only nodes.
func (p Plan) HollowKubelets() Program {
	address := fmt.Sprintf("%s:%d", healthHost, hollowHealthPort)
	return p.program(Hollow, p.Programs.Self, Probe{Address: address, Path: "/readyz"},
		HollowCommand, "--kubeconfig="+p.kubeconfig(Hollow), "--health-address="+address,
	)
}

// corefile is CoreDNS's configuration.
func (p Plan) corefile() []byte {
	return fmt.Appendf(nil, `.:53 {
    errors
    ready %[2]s:%[3]d
    hosts {
        %[1]s %[4]s
        %[1]s %[5]s
        ttl 60
        fallthrough
    }
    kubernetes %[6]s in-addr.arpa {
        kubeconfig %[7]s
        pods insecure
        ttl 2
    }
}
`, layout.ControlAddress, healthHost, corednsReadyPort, layout.RegistryHost, layout.HubHost, layout.ClusterDomain, p.kubeconfig(CoreDNS))
}
