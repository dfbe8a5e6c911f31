// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine runs a machine of the cloud as a process of this host: a node in namespaces of its own, plugged
// into the private network. It owns a node's things outside itself (control group, cable, route, directory) and
// removes them again; the inside is the node's business.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/cgroup"
	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/netspace"
	"github.com/modelberth/modelberth/test/localcloud/node"
	"github.com/modelberth/modelberth/test/localcloud/pki"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/script"
)

// InitCommand is this program's hidden command for becoming a node.
const InitCommand = "node-init"

// cleanDeadline bounds the removal of a dead node's things outside itself.
const cleanDeadline = 20 * time.Second

// Runner runs machines. All fields are required.
type Runner struct {
	Layout    layout.Layout
	Space     *netspace.Space
	Cgroups   cgroup.Host
	Authority *pki.Authority
	// Self is how this program starts itself.
	Self   string
	BinDir string
	// SandboxImage holds every pod's namespaces.
	SandboxImage string
	APIServer    string
}

// Run implements cloud.Runner.
func (r *Runner) Run(ctx context.Context, m cloud.Machine, labels map[string]string, started func(pid int)) (err error) {
	config, err := r.config(m, labels)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.clean(config)) }()
	if err := r.Cgroups.Create(config.Cgroup); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Layout.NodeLogs(m.Name), 0o755); err != nil {
		return fmt.Errorf("making the disk of node %s: %w", m.Name, err)
	}
	return r.live(ctx, config, started)
}

// live starts the node's first process, connects it, and waits for its end.
func (r *Runner) live(ctx context.Context, config node.Config, started func(pid int)) error {
	output, err := os.OpenFile(r.Layout.Log(config.Name+"/init"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of node %s: %w", config.Name, err)
	}
	defer func() { _ = output.Close() }()
	cmd := r.command(output)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("opening a pipe to node %s: %w", config.Name, err)
	}
	if err := r.Space.Start(cmd); err != nil {
		_ = stdin.Close()
		return fmt.Errorf("starting node %s: %w", config.Name, err)
	}
	var exit error
	ended := make(chan struct{})
	go func() {
		exit = cmd.Wait()
		close(ended)
	}()
	if err := r.connect(cmd.Process.Pid, config, stdin); err != nil {
		_ = cmd.Process.Kill()
		<-ended
		return err
	}
	started(cmd.Process.Pid)
	select {
	case <-ctx.Done():
		// With the node's first process the kernel ends all its others.
		_ = cmd.Process.Kill()
		<-ended
		return nil
	case <-ended:
		return fmt.Errorf("node %s ended by itself (%w): see %s", config.Name, orUnknown(exit), r.Layout.EndedNodeLogs(config.Name))
	}
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// command is the node's first process in namespaces of its own.
func (r *Runner) command(output io.Writer) *exec.Cmd {
	cmd := exec.Command(r.Self, InitCommand)
	cmd.Args[0] = "localcloud"
	cmd.Env = process.Environment()
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
		Setsid:     true,
	}
	return cmd
}

// connect plugs the node in and then sends its configuration: the message is also its sign to go on.
func (r *Runner) connect(pid int, config node.Config, stdin io.WriteCloser) error {
	defer func() { _ = stdin.Close() }()
	identity, err := process.Identify(pid)
	if err != nil {
		return err
	}
	if err := identity.Record(r.Layout.Processes(), recordName(config.Name)); err != nil {
		return err
	}
	if err := r.Space.Plug(pid, config.Network.Slot, config.Network.Address, config.Network.PodCIDR); err != nil {
		return err
	}
	return config.Send(stdin)
}

func (r *Runner) config(m cloud.Machine, labels map[string]string) (node.Config, error) {
	kubelet, err := r.Authority.Issue(pki.Subject{User: "system:node:" + m.Name, Groups: []string{"system:nodes"}, Hosts: []string{m.Name, m.Network.Address}})
	if err != nil {
		return node.Config{}, err
	}
	proxy, err := r.Authority.Issue(pki.Subject{User: "system:kube-proxy"})
	if err != nil {
		return node.Config{}, err
	}
	config := node.Config{
		Name:         m.Name,
		ProviderID:   m.ProviderID,
		Disk:         r.Layout.Node(m.Name),
		BinDir:       r.BinDir,
		Cgroup:       r.Layout.Cgroup() + "/" + m.Name,
		Network:      m.Network,
		Labels:       labels,
		Taints:       m.Taints,
		GPUs:         m.ShownGPUs(),
		GPUResource:  m.GPUResource,
		CPUs:         m.CPUs,
		MemoryGiB:    m.MemoryGiB,
		SandboxImage: r.SandboxImage,
		APIServer:    r.APIServer,
		Authority:    r.Authority.Cert,
		Kubelet:      kubelet,
		Proxy:        proxy,
	}
	if m.Fate != nil && m.Fate.Outcome == script.NotReady {
		config.Falls = m.Fate.After.Duration
	}
	if m.Fate != nil && m.Fate.Outcome == script.GPUsLost {
		config.GPUsFail, config.GPUsLeft = m.Fate.After.Duration, m.Fate.GPUs
	}
	if m.System {
		// No cloud sold it, so Karpenter has nothing to look up.
		config.ProviderID = ""
	}
	return config, nil
}

// clean removes the node's things outside itself. Only its logs stay, to explain its end.
func (r *Runner) clean(config node.Config) error {
	// Not the caller's context: it has ended when a machine is deleted.
	ctx, cancel := context.WithTimeout(context.Background(), cleanDeadline)
	defer cancel()
	return errors.Join(
		r.Space.Unplug(config.Network.Slot, config.Network.Address, config.Network.PodCIDR),
		r.Cgroups.Remove(ctx, config.Cgroup),
		r.keepLogs(config.Name),
		os.RemoveAll(r.Layout.Node(config.Name)),
		os.RemoveAll(process.RecordPath(r.Layout.Processes(), recordName(config.Name))),
	)
}

func (r *Runner) keepLogs(name string) error {
	kept := r.Layout.EndedNodeLogs(name)
	if err := os.RemoveAll(kept); err != nil {
		return fmt.Errorf("removing the logs of an earlier node %s: %w", name, err)
	}
	if err := os.Rename(r.Layout.NodeLogs(name), kept); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keeping the logs of node %s: %w", name, err)
	}
	return nil
}

func recordName(node string) string { return "node-" + node }
