// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"crypto/ed25519"
	"flag"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/workload"
)

// parse parses and validates flags as the process does.
func parse(args ...string) (options.Controller, error) {
	var o options.Controller
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.Bind(flags)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := o.Validate()
	return o, err
}

func TestParse(t *testing.T) {
	got, err := parse(
		"--agent-image=registry.example/agent:1", "--node-class=karpenter.azure.com/AKSNodeClass/default",
		"--node-class=karpenter.azure.com/AKSNodeClass/big", "--cloud=azure", "--region=westeurope",
		"--engine-image=llamacpp=registry.example/llama:b1", "--leader-elect",
		"--weights-ca-config-map=company-ca", "--weights-https-proxy=http://proxy:3128", "--weights-no-proxy=.corp",
		"--weights-cache=team-a=models", "--weights-cache-limit-gib=500", "--rdma-resource=rdma/hca_shared_devices_a",
		"--kv-events-consumer=router-system/app=router,example.com/role=epp",
		"--router-pods=system/app=router", "--router-token-file=/run/token", "--router-ca-file=/etc/ca.crt", "--router-server-name=router.svc",
		"--watch-namespace=team-a", "--watch-namespace=team-b", "--watch-namespace=team-a", "--watch-pods-of-nodes",
		"--calibration-files=/etc/calibration", "--calibration-key=O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=",
		"--egress=10.0.0.0/8=443,8443", "--egress=2001:db8::/32", "--media-domain=images.example",
		"--daemonset-namespace=kube-system", "--daemonset-namespace=gpu-*", "--daemonset-namespace=*",
	)
	if err != nil {
		t.Fatal(err)
	}
	want := options.Controller{
		Metrics: options.Metrics{Address: ":8443"}, HealthAddress: ":8081", LeaderElect: true, LeaseName: options.DefaultLeaseName, Workers: 32, QPS: 200, Burst: 300,
		Clouds: []string{"azure"}, Region: "westeurope",
		Watch: options.Watch{Namespaces: []string{"team-a", "team-b"}, PodsOfNodes: true},
		NodeClasses: []v1beta1.NodeClassReference{
			{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "default"},
			{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "big"},
		},
		AgentImage:   "registry.example/agent:1",
		EngineImages: map[string]string{"llamacpp": "registry.example/llama:b1"},
		HubEndpoint:  "https://huggingface.co",
		Spending:     options.Spending{PerWorkspace: 150, PerNamespace: 300, Cluster: 600},
		Routers: options.Routers{
			Pods: workload.Consumer{Namespace: "system", PodLabels: map[string]string{"app": "router"}}, Port: 8443,
			TokenFile: "/run/token", CAFile: "/etc/ca.crt", ServerName: "router.svc",
		},
		Cost: options.Cost{Name: "modelberth-cost", Interval: 5 * time.Minute, Publish: true, CountTokens: true},
		Weights: options.Weights{
			CAConfigMap: "company-ca", HTTPSProxy: "http://proxy:3128", NoProxy: ".corp",
			Caches: map[string]string{"team-a": "models"}, CacheLimitGiB: 500,
		},

		Egress: []options.Destination{
			{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Ports: []int32{443, 8443}}, {CIDR: netip.MustParsePrefix("2001:db8::/32")},
		},
		MediaDomains: []string{"images.example"},

		DaemonSetNamespaces: []string{"kube-system", "gpu-*", "*"},

		MultiNode: isolation.RequireEnforcement,

		RDMA: options.RDMA{Resource: "rdma/hca_shared_devices_a", Count: 1},
		KVEvents: workload.Consumer{
			Namespace: "router-system", PodLabels: map[string]string{"app": "router", "example.com/role": "epp"},
		},

		Calibration: options.Calibration{
			OwnStarts: true, OwnSpeeds: true, Files: "/etc/calibration", Keys: []ed25519.PublicKey{ed25519.PublicKey(ed25519.NewKeyFromSeed(make([]byte, 32))[ed25519.SeedSize:])},
		},

		LaunchDeadline: 10 * time.Minute, RegistrationDeadline: 20 * time.Minute, InitializationDeadline: 30 * time.Minute,
		NodeGrace: 10 * time.Minute, FailureDeadline: 30 * time.Minute, IdleDeadline: 6 * time.Hour, CapacityBackend: "auto", GPUPluginCheck: true,
		Dedication: preflight.Auto,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoNodeClass checks that no NodeClass is required without purchases through Karpenter.
func TestNoNodeClass(t *testing.T) {
	for _, backend := range []string{options.BackendPods, options.BackendExisting} {
		if _, err := parse("--agent-image=a", "--capacity-backend="+backend); err != nil {
			t.Errorf("%s: %v", backend, err)
		}
	}
}

func TestBadFlags(t *testing.T) {
	good := []string{"--agent-image=a", "--node-class=g/k/n"}
	tests := []struct {
		reason string
		args   []string
		want   []string
	}{
		{"nothing is given", nil, []string{"--agent-image is required", "--node-class is required"}},
		{"a NodeClass without a name", []string{"--node-class=g/k"}, []string{`"g/k" is not of the form group/kind/name`}},
		{"an empty part of a NodeClass", []string{"--node-class=g//n"}, []string{`"g//n" is not of the form group/kind/name`}},
		{"an engine's image without a name", []string{"--engine-image==x"}, []string{`"=x" is not of the form name=reference`}},
		{"no workers", append(good, "--workers=0"), []string{"--workers is 0"}},
		{"no requests", append(good, "--kube-client-qps=0"), []string{"--kube-client-qps is 0"}},
		{"an unknown back end", append(good, "--capacity-backend=nodes"), []string{
			`--capacity-backend is "nodes": it must be one of auto, nodeclaim, nodepool, pods, existing`,
		}},
		{"Karpenter's pools without a NodeClass", []string{"--agent-image=a", "--capacity-backend=nodepool"}, []string{"--node-class is required"}},
		{"static pools that are not asked for", append(good, "--static-node-pools"), []string{"--static-node-pools needs --capacity-backend=nodepool"}},
		{"routers without a token", append(good, "--router-pods=a/b=c"), []string{"--router-pods needs either --router-token-file or --router-metrics-insecure"}},
		{"a token in plain text", append(good, "--router-pods=a/b=c", "--router-token-file=t", "--router-metrics-insecure"), []string{
			"--router-pods needs either --router-token-file or --router-metrics-insecure",
		}},
		{"routers without a port", append(good, "--router-pods=a/b=c", "--router-token-file=t", "--router-metrics-port=0"), []string{
			"--router-metrics-port must be between 1 and 65535",
		}},
		{"an authority for no name", append(good, "--router-pods=a/b=c", "--router-token-file=t", "--router-ca-file=f"), []string{
			"--router-ca-file and --router-server-name belong together: set both or neither",
		}},
		{"an unknown pull policy", append(good, "--image-pull-policy=Sometimes"), []string{`--image-pull-policy is "Sometimes"`}},
		{"a namespace that no namespace is called", []string{"--watch-namespace=Team"}, []string{`"Team" is not the name of a namespace`}},
		{"existing nodes of which nobody may see what is free", append(good, "--capacity-backend=existing", "--watch-namespace=a"), []string{
			"--capacity-backend=existing with --watch-namespace requires --watch-pods-of-nodes",
		}},
		{"a ceiling below nothing", append(good, "--spending-cluster=-1"), []string{"--spending-cluster is -1"}},
		{"a ceiling of nothing, which was none once", append(good, "--spending-per-namespace=0"), []string{
			"--spending-per-namespace is 0: it must be a price above 0 in USD per hour; --spending-unlimited lifts all ceilings",
		}},
		{"a ceiling that is no number", append(good, "--spending-per-workspace=NaN"), []string{"--spending-per-workspace is NaN"}},
		{"a ledger that writes all the time", append(good, "--cost-namespace=a", "--cost-interval=1s"), []string{"--cost-interval is 1s: it must be at least 1m0s"}},
		{"a ledger without a possible name", append(good, "--cost-namespace=a", "--cost-name=A"), []string{
			`--cost-name is "A": it must be the name of a ConfigMap`,
		}},
		{"too many labels", append(good, "--cost-namespace=a", "--cost-label=a", "--cost-label=b", "--cost-label=c", "--cost-label=d", "--cost-label=e",
			"--cost-label=f"), []string{"--cost-label is set 6 times, but at most 5 labels are allowed"}},
		{"no label", append(good, "--cost-label=a b"), []string{`"a b" is not the key of a label`}},
		{"a pattern that is none", append(good, "--allow-instance-type=[a"), []string{`it must be a machine type, or a pattern`}},
		{"a resource without a domain", []string{"--rdma-resource=hca"}, []string{`"hca" does not name an extended resource`}},
		{"a resource that is no name", []string{"--rdma-resource=rdma/h c a"}, []string{`"rdma/h c a" does not name an extended resource`}},
		{"less than one of a resource", []string{"--rdma-resource=rdma/hca=0"}, []string{`requests "0" of rdma/hca`}},
		{"a consumer of events that is any pod of its namespace", []string{"--kv-events-consumer=router-system"}, []string{`"router-system" does not select pods`}},
		{"a consumer of events in no namespace", []string{"--kv-events-consumer=/app=router"}, []string{`"/app=router" does not select pods`}},
		{"a consumer of events by half a label", []string{"--kv-events-consumer=router-system/app"}, []string{`"router-system/app" does not select pods`}},
		{"an unknown way to run several machines", append(good, "--multi-node=Maybe"), []string{`--multi-node is "Maybe"`}},
		{"a destination that is no range", []string{"--egress=hub.example=443"}, []string{`"hub.example=443" does not begin with an address range`}},
		{"a range with an address of its own", []string{"--egress=10.1.2.3/8"}, []string{`"10.1.2.3/8" does not begin with an address range`}},
		{"a port that is none", []string{"--egress=10.0.0.0/8=443,https"}, []string{`names port "https"`}},
		{"a range without its ports", []string{"--egress=10.0.0.0/8="}, []string{`names port ""`}},
		{"media from a URL", []string{"--media-domain=https://images.example"}, []string{`"https://images.example" is neither * nor a lower-case host name`}},
		{"no namespace of DaemonSets", []string{"--daemonset-namespace="}, []string{`"" is neither the name of a namespace`}},
		{"a pattern in the middle", []string{"--daemonset-namespace=gpu-*-x"}, []string{`"gpu-*-x" is neither the name of a namespace`}},
		{"a cache of no namespace", []string{"--weights-cache=models"}, []string{`"models" is not of the form namespace=claim`}},
		{"less than no cache", append(good, "--weights-cache-limit-gib=-1"), []string{"--weights-cache-limit-gib is -1"}},
		{"a proxy without a scheme", append(good, "--weights-https-proxy=proxy:3128"), []string{`--weights-https-proxy is "proxy:3128"`}},
		{"a taint now and then", append(good, "--dedicated-taint=auto"), []string{
			`--dedicated-taint is "auto": it must be one of [Auto Enabled Disabled]`,
		}},
		{"a certificate for plain HTTP", append(good, "--metrics-insecure", "--metrics-cert-dir=/certs"), []string{
			"--metrics-cert-dir has no effect with --metrics-insecure: remove one of them",
		}},
		{"a hub without a scheme", append(good, "--hub-endpoint=hub.example"), []string{`--hub-endpoint is "hub.example"`}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			_, err := parse(test.args...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// By default there are ceilings, and each allows one machine with 8 H100.
func TestCeilingsAreSetByDefault(t *testing.T) {
	const dearest = 98.32 // Standard_ND96isr_H100_v5 in eastus
	tests := []struct {
		reason string
		args   []string
		want   [3]float64
	}{
		{"nothing is said", nil, [3]float64{options.DefaultPerWorkspace, options.DefaultPerNamespace, options.DefaultCluster}},
		{"one is said", []string{"--spending-cluster=2000"}, [3]float64{options.DefaultPerWorkspace, options.DefaultPerNamespace, 2000}},
		{"none is wanted", []string{"--spending-unlimited"}, [3]float64{}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			var o options.Controller
			flags := flag.NewFlagSet("controller", flag.ContinueOnError)
			o.Bind(flags)
			if err := flags.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			var got [3]float64
			got[0], got[1], got[2] = o.Spending.Ceilings()
			if got != tt.want {
				t.Errorf("ceilings: got %v, want %v", got, tt.want)
			}
			for _, ceiling := range got {
				if ceiling > 0 && ceiling < dearest {
					t.Errorf("a machine with 8 H100 for %v does not pass %v", dearest, ceiling)
				}
			}
		})
	}
}
