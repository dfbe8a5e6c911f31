// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/test/localcloud/layout"
)

// file is one file of a node, rendered.
type file struct {
	Path string
	Data []byte
	Mode os.FileMode
}

// files renders every file of the node's programs, in the order of their paths.
func files(c Config, restrictOOM bool) ([]file, error) {
	registry := fmt.Sprintf("%s:%d", layout.RegistryHost, layout.RegistryPort)
	out := []file{
		{Path: "/etc/hosts", Data: hosts(c), Mode: 0o644},
		{Path: "/etc/hostname", Data: []byte(c.Name + "\n"), Mode: 0o644},
		{Path: "/etc/resolv.conf", Data: []byte("nameserver " + layout.ControlAddress + "\n"), Mode: 0o644},
		{Path: "/etc/machine-id", Data: machineID(c), Mode: 0o644},
		{Path: filepath.Join(configDir, "containerd.toml"), Data: containerdConfig(c, restrictOOM), Mode: 0o644},
		{Path: filepath.Join(configDir, "registries", registry, "hosts.toml"), Data: registryConfig(registry), Mode: 0o644},
		{Path: filepath.Join(configDir, "ca.crt"), Data: c.Authority, Mode: 0o644},
		{Path: filepath.Join(configDir, "kubelet.crt"), Data: c.Kubelet.Cert, Mode: 0o644},
		{Path: filepath.Join(configDir, "kubelet.key"), Data: c.Kubelet.Key, Mode: 0o600},
	}
	rendered := []struct {
		path   string
		render func(Config) ([]byte, error)
	}{
		{filepath.Join(cniDir, "10-modelberth.conflist"), cniConfig},
		{filepath.Join(configDir, "kubelet.yaml"), kubeletConfig},
		{filepath.Join(configDir, "kube-proxy.yaml"), proxyConfig},
		{filepath.Join(configDir, "kubelet.kubeconfig"), func(c Config) ([]byte, error) {
			return Kubeconfig(c.APIServer, c.Authority, c.Kubelet.Cert, c.Kubelet.Key)
		}},
		{filepath.Join(configDir, "kube-proxy.kubeconfig"), func(c Config) ([]byte, error) {
			return Kubeconfig(c.APIServer, c.Authority, c.Proxy.Cert, c.Proxy.Key)
		}},
	}
	for _, r := range rendered {
		data, err := r.render(c)
		if err != nil {
			return nil, fmt.Errorf("rendering %s of node %s: %w", r.path, c.Name, err)
		}
		out = append(out, file{Path: r.path, Data: data, Mode: 0o600})
	}
	slices.SortFunc(out, func(a, b file) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

func hosts(c Config) []byte {
	return fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n%s %s %s\n",
		c.Network.Address, c.Name, layout.ControlAddress, layout.RegistryHost, layout.HubHost)
}

// machineID differs between nodes though they share a kernel.
func machineID(c Config) []byte { return fmt.Appendf(nil, "%032x\n", c.Network.Slot+1) }

// containerdConfig is in version 2 of the format, for containerd 1.6 to 2.x. AppArmor stays off: its profiles would
// be loaded into the host's kernel and outlive the node.
func containerdConfig(c Config, restrictOOM bool) []byte {
	return fmt.Appendf(nil, `version = 2
root = %q
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
  address = %q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = %t
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
`, containerdDir, runtimeSocket, c.SandboxImage, restrictOOM, HostCNI, cniDir, filepath.Join(configDir, "registries"))
}

func registryConfig(registry string) []byte {
	return fmt.Appendf(nil, "server = \"http://%[1]s\"\n\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", registry)
}

// cniConfig joins each pod to the node by a cable of its own. The control
// plane's namespace routes between the nodes' ranges.
func cniConfig(c Config) ([]byte, error) {
	type object = map[string]any
	return json.MarshalIndent(object{
		"cniVersion": "0.4.0",
		"name":       "modelberth",
		"plugins": []object{{
			"type": "ptp",
			"ipam": object{
				"type":    "host-local",
				"dataDir": "/run/cni",
				"ranges":  [][]object{{{"subnet": c.Network.PodCIDR}}},
				"routes":  []object{{"dst": "0.0.0.0/0"}},
			},
		}},
	}, "", "  ")
}

// kubeletConfig departs from the defaults because a node is a guest on somebody's machine: it never evicts or
// collects images because of the host's disk, and reports changes quickly, as GPUs appear after it has started.
func kubeletConfig(c Config) ([]byte, error) {
	config := kubeletconfig.KubeletConfiguration{
		TypeMeta:                      metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		Address:                       c.Network.Address,
		HealthzBindAddress:            "127.0.0.1",
		ProviderID:                    c.ProviderID,
		RegisterWithTaints:            c.Taints,
		ContainerRuntimeEndpoint:      "unix://" + runtimeSocket,
		TLSCertFile:                   filepath.Join(configDir, "kubelet.crt"),
		TLSPrivateKeyFile:             filepath.Join(configDir, "kubelet.key"),
		ClusterDomain:                 layout.ClusterDomain,
		ClusterDNS:                    []string{layout.DNSService},
		ResolverConfig:                new("/etc/resolv.conf"),
		PodLogsDir:                    podLogsDir,
		VolumePluginDir:               filepath.Join(kubeletDir, "volume-plugins"),
		CgroupDriver:                  "cgroupfs",
		CgroupRoot:                    "/" + c.Cgroup,
		FailCgroupV1:                  new(false),
		FailSwapOn:                    new(false),
		LocalStorageCapacityIsolation: new(true),
		OOMScoreAdj:                   new(int32(0)),
		NodeStatusUpdateFrequency:     metav1.Duration{Duration: 2 * time.Second},
		NodeStatusReportFrequency:     metav1.Duration{Duration: time.Minute},
		SyncFrequency:                 metav1.Duration{Duration: 10 * time.Second},
		ImageGCHighThresholdPercent:   new(int32(100)),
		ImageGCLowThresholdPercent:    new(int32(99)),
		EvictionHard:                  map[string]string{"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		SerializeImagePulls:           new(false),
		KubeAPIQPS:                    new(int32(50)),
		KubeAPIBurst:                  100,
	}
	config.Authentication.X509.ClientCAFile = filepath.Join(configDir, "ca.crt")
	config.Authentication.Anonymous.Enabled = new(false)
	config.Authentication.Webhook.Enabled = new(true)
	config.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	return yaml.Marshal(config)
}

// proxyConfig leaves the conntrack limits alone: they belong to the host.
func proxyConfig(c Config) ([]byte, error) {
	config := proxyconfig.KubeProxyConfiguration{
		TypeMeta:           metav1.TypeMeta{APIVersion: proxyconfig.SchemeGroupVersion.String(), Kind: "KubeProxyConfiguration"},
		Mode:               "iptables",
		BindAddress:        c.Network.Address,
		HostnameOverride:   c.Name,
		HealthzBindAddress: "127.0.0.1:10256",
		MetricsBindAddress: "127.0.0.1:10249",
		ClusterCIDR:        layout.PodNetwork,
		OOMScoreAdj:        new(int32(0)),
	}
	// A Service's first endpoint is to be reachable when its pod is ready, not a second later.
	config.IPTables.MinSyncPeriod = metav1.Duration{Duration: 200 * time.Millisecond}
	config.ClientConnection.Kubeconfig = filepath.Join(configDir, "kube-proxy.kubeconfig")
	config.Conntrack.MaxPerCore = new(int32(0))
	config.Conntrack.Min = new(int32(0))
	config.Conntrack.TCPEstablishedTimeout = &metav1.Duration{}
	config.Conntrack.TCPCloseWaitTimeout = &metav1.Duration{}
	return yaml.Marshal(config)
}

// Kubeconfig renders access to the API server for one certificate.
func Kubeconfig(server string, authority, cert, key []byte) ([]byte, error) {
	const name = "modelberth-local"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// labelList renders labels as kubelet's flag takes them.
func labelList(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}
