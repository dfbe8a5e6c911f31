// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/deviceplugin"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/netspace"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// runtimeDeadline bounds the wait for containerd's socket before kubelet is
// started all the same and left to its own restarts.
const runtimeDeadline = 30 * time.Second

// Run is the life of a node: it returns only when the node cannot be set up or
// ctx ends.
func Run(ctx context.Context, c Config, log *slog.Logger) error {
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("naming node %s: %w", c.Name, err)
	}
	if err := enterRoot(c); err != nil {
		return fmt.Errorf("building the root of node %s: %w", c.Name, err)
	}
	if err := netspace.Settle(c.Network.Address, layout.PrefixBits, layout.ControlAddress); err != nil {
		return fmt.Errorf("connecting node %s: %w", c.Name, err)
	}
	if err := netspace.WriteSysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if err := writeFiles(c); err != nil {
		return err
	}
	reaper := process.NewReaper()
	go reaper.Run(ctx)
	return keep(ctx, c, reaper, log)
}

func writeFiles(c Config) error {
	restrict, err := lacksResourceCapability()
	if err != nil {
		return err
	}
	rendered, err := files(c, restrict)
	if err != nil {
		return err
	}
	for _, f := range rendered {
		if err := writeFile(f.Path, f.Data, f.Mode); err != nil {
			return err
		}
	}
	return nil
}

// keep runs the node's programs until ctx ends.
func keep(ctx context.Context, c Config, starter process.Starter, log *slog.Logger) error {
	var running sync.WaitGroup
	defer running.Wait()
	run := func(ctx context.Context, command process.Command) {
		keeper := process.NewKeeper(command, starter, log)
		running.Go(func() { keeper.Run(ctx) })
	}
	run(ctx, containerdCommand())
	run(ctx, proxyCommand())
	waiting, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	if err := process.Await(waiting, "containerd", 50*time.Millisecond, dialRuntime); err != nil {
		log.Warn("container runtime is late", "error", err)
	}
	kubelet, silence := ctx, func() {}
	if c.Falls > 0 {
		// Its pods go on, as under a dead kubelet.
		kubelet, silence = context.WithTimeout(ctx, c.Falls)
	}
	defer silence()
	run(kubelet, kubeletCommand(c))
	if c.GPUs > 0 {
		plugin := deviceplugin.New(filepath.Join(kubeletDir, "device-plugins"), c.GPUResource, c.GPUs, log)
		if c.GPUsFail > 0 {
			plugin.Fail(time.Now().Add(c.GPUsFail), c.GPUsLeft)
		}
		running.Go(func() { plugin.Run(ctx) })
	}
	<-ctx.Done()
	return nil
}

func dialRuntime(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", runtimeSocket)
	if err != nil {
		return err
	}
	return conn.Close()
}

func containerdCommand() process.Command {
	return process.Command{
		Name: "containerd",
		Path: "containerd",
		Args: []string{"--config", filepath.Join(configDir, "containerd.toml"), "--log-level", "info"},
		Env:  process.Environment(),
		Log:  filepath.Join(logsDir, "containerd.log"),
	}
}

func kubeletCommand(c Config) process.Command {
	return process.Command{
		Name: "kubelet",
		Path: filepath.Join(binDir, "kubelet"),
		Args: []string{
			"--config=" + filepath.Join(configDir, "kubelet.yaml"),
			"--kubeconfig=" + filepath.Join(configDir, "kubelet.kubeconfig"),
			"--root-dir=" + kubeletDir,
			"--cert-dir=/run/kubelet",
			"--hostname-override=" + c.Name,
			"--node-ip=" + c.Network.Address,
			"--node-labels=" + labelList(c.Labels),
		},
		Env: process.Environment(),
		Log: filepath.Join(logsDir, "kubelet.log"),
	}
}

func proxyCommand() process.Command {
	return process.Command{
		Name: "kube-proxy",
		Path: filepath.Join(binDir, "kube-proxy"),
		Args: []string{"--config=" + filepath.Join(configDir, "kube-proxy.yaml")},
		Env:  process.Environment(),
		Log:  filepath.Join(logsDir, "kube-proxy.log"),
	}
}

// lacksResourceCapability reports whether the process lacks the right to lower the OOM score of a process. containerd
// needs a setting in that case: without it, every start of a pod fails.
func lacksResourceCapability() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("reading the process's capabilities: %w", err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0, nil
}
