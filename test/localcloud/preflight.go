// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/modelberth/modelberth/test/localcloud/node"
)

// preflight reports all missing things at once, before any start.
func preflight(s *settings) error {
	if err := requireRoot("make namespaces and control groups"); err != nil {
		return err
	}
	var missing []error
	for flag, value := range map[string]string{"bin-dir": s.binDir, "coredns": s.coreDNS, "skus": s.skus, "pause-image": s.pauseImage} {
		if value == "" {
			missing = append(missing, fmt.Errorf("flag --%s is required", flag))
			continue
		}
		if _, err := os.Stat(value); err != nil {
			missing = append(missing, fmt.Errorf("flag --%s: %w", flag, err))
		}
	}
	if _, err := os.Stat(s.auditPolicy); s.auditPolicy != "" && err != nil {
		missing = append(missing, fmt.Errorf("flag --audit-policy: %w", err))
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"} {
		if s.binDir == "" {
			break
		}
		if _, err := os.Stat(filepath.Join(s.binDir, name)); err != nil {
			missing = append(missing, fmt.Errorf("program of --bin-dir: %w", err))
		}
	}
	return errors.Join(append(missing, missingPackages()...)...)
}

// missingPackages looks for the programs of Debian's packages.
func missingPackages() []error {
	var missing []error
	for program, pkg := range map[string]string{"containerd": "containerd", "runc": "runc", "iptables": "iptables", "mount": "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, fmt.Errorf("program %s is not installed: apt-get install %s", program, pkg))
		}
	}
	for _, plugin := range []string{"ptp", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(node.HostCNI, plugin)); err != nil {
			missing = append(missing, fmt.Errorf("network plugin %s is not in %s: apt-get install containernetworking-plugins", plugin, node.HostCNI))
		}
	}
	return missing
}
