// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is the inside of one machine of the local cloud: the first process of its own network, mount, process,
// host name and IPC namespaces. It builds a root file system through which only the node's own directory reaches the
// host, and keeps containerd, kubelet and kube-proxy running. When it dies, the kernel ends everything in it. It must
// not know the cloud: the machine's description arrives in its Config.
package node

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/pki"
)

// Config describes a node completely.
type Config struct {
	Name       string `json:"name"`
	ProviderID string `json:"providerID,omitempty"`
	// Disk is the node's directory on the host.
	Disk string `json:"disk"`
	// BinDir holds kubelet and kube-proxy on the host.
	BinDir string `json:"binDir"`
	// Cgroup is the parent of all the node's pods, relative to each hierarchy.
	Cgroup      string             `json:"cgroup"`
	Network     layout.NodeNetwork `json:"network"`
	Labels      map[string]string  `json:"labels,omitempty"`
	Taints      []corev1.Taint     `json:"taints,omitempty"`
	GPUs        int                `json:"gpus,omitempty"`
	GPUResource string             `json:"gpuResource,omitempty"`
	// CPUs and MemoryGiB are the processors and memory the node shows; zero means the host's.
	CPUs         int    `json:"cpus,omitempty"`
	MemoryGiB    int    `json:"memoryGiB,omitempty"`
	SandboxImage string `json:"sandboxImage"`
	// Falls is when the kubelet falls silent for good; zero is never.
	Falls time.Duration `json:"falls,omitempty"`
	// GPUsFail is when all but GPUsLeft of the GPUs become unhealthy; zero is never.
	GPUsFail time.Duration `json:"gpusFail,omitempty"`
	GPUsLeft int           `json:"gpusLeft,omitempty"`
	// APIServer is the URL of the API server for kubelet and kube-proxy.
	APIServer string `json:"apiServer"`
	// Authority is the certificate of the authority behind all others.
	Authority []byte `json:"authority"`
	// Kubelet is its client and serving certificate at once.
	Kubelet pki.Pair `json:"kubelet"`
	Proxy   pki.Pair `json:"proxy"`
}

// ReadConfig reads a Config as the supervisor sends it.
func ReadConfig(r io.Reader) (Config, error) {
	var c Config
	if err := json.NewDecoder(r).Decode(&c); err != nil {
		return Config{}, fmt.Errorf("reading the node's configuration: %w", err)
	}
	return c, nil
}

// Send sends the Config to a node.
func (c Config) Send(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(c); err != nil {
		return fmt.Errorf("sending node %s its configuration: %w", c.Name, err)
	}
	return nil
}

// If things are inside a node.
const (
	binDir        = "/node/bin"
	configDir     = "/node/config"
	logsDir       = "/node/logs"
	kubeletDir    = "/var/lib/kubelet"
	containerdDir = "/var/lib/containerd"
	podLogsDir    = "/var/log/pods"
	cniDir        = "/etc/cni/net.d"
	runtimeSocket = "/run/containerd/containerd.sock"
)

// HostCNI is the distribution's directory of network plugins.
const HostCNI = "/usr/lib/cni"

// disks maps a directory of the node's disk to its path inside the node.
func (c Config) disks() map[string]string {
	return map[string]string{
		filepath.Join(c.Disk, "kubelet"):    kubeletDir,
		filepath.Join(c.Disk, "containerd"): containerdDir,
		filepath.Join(c.Disk, "pods"):       podLogsDir,
		filepath.Join(c.Disk, "logs"):       logsDir,
	}
}
