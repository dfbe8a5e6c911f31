// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const (
	// stopped is how long a stopped API server answers nothing: less than the controller's lease.
	stopped = 5 * time.Second
	// cutOff is how long a machine cannot reach the API server or another machine: less than the grace of a silent node.
	cutOff = 15 * time.Second
)

// victim is something that a test breaks. The local cloud starts again what dies.
type victim struct {
	name string
	hit  func(context.Context) error
}

// leaders are the ways in which the controller's leader ends.
func leaders() []victim {
	end := func(hard bool) func(context.Context) error {
		return func(ctx context.Context) error { return killLeader(ctx, hard) }
	}
	return []victim{{"the leader was deleted", end(false)}, {"the leader was killed", end(true)}}
}

// others are the rest of the cluster.
func others() []victim {
	out := []victim{
		{"the API server stood still", func(ctx context.Context) error { return stop(ctx, "kube-apiserver") }},
		{"a kubelet was killed", killKubelet},
		{"a machine lost the API server", isolateMachine},
	}
	for _, name := range []string{"kube-apiserver", "etcd", "karpenter", "kube-controller-manager", "kube-scheduler"} {
		out = append(out, victim{name + " was killed", func(ctx context.Context) error {
			pid, err := component(ctx, name)
			if err != nil {
				return err
			}
			return killAndWait(pid)
		}})
	}
	return out
}

// component returns the process of a running component. One that another blow has just killed is waited for.
func component(ctx context.Context, name string) (pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return pid, poll(ctx, func(ctx context.Context) (bool, error) {
		status, err := askCloud(ctx)
		if err != nil {
			return false, err
		}
		for _, each := range status.Components {
			if each.Name == name && each.PID > 1 {
				pid = each.PID
				return true, nil
			}
		}
		return false, fmt.Errorf("no component %s runs", name)
	})
}

// stop stops a component for a while.
func stop(ctx context.Context, name string) error {
	pid, err := component(ctx, name)
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, stopped)
	return unix.Kill(pid, unix.SIGCONT)
}

// machine returns the first process of the newest machine, often the model's, or of the oldest one.
func machine(ctx context.Context, oldest bool) (int, error) {
	status, err := askCloud(ctx)
	if err != nil {
		return 0, err
	}
	var at time.Time
	pid := 0
	for _, machine := range status.Machines {
		if machine.PID > 1 && (pid == 0 || machine.Created.Before(at) == oldest) {
			at, pid = machine.Created, machine.PID
		}
	}
	if pid == 0 {
		return 0, errors.New("no machine runs")
	}
	return pid, nil
}

// killKubelet kills the kubelet of the oldest machine, on which the controller runs. On the model's machine, the pod would
// be not Ready, and its Service without an endpoint, until the new kubelet has probed it.
func killKubelet(ctx context.Context) error {
	machine, err := machine(ctx, true)
	if err != nil {
		return err
	}
	network, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", machine))
	if err != nil {
		return err
	}
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, file := range all {
		name, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(name)) != "kubelet" {
			continue
		}
		if its, err := os.Readlink(filepath.Join(filepath.Dir(file), "ns/net")); err != nil || its != network {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		return killAndWait(pid)
	}
	return nil // the machine is on its way up or down
}

// isolateMachine drops the packets of a machine to the API server for a while. Its pods go on, and serve.
func isolateMachine(ctx context.Context) error {
	machine, err := machine(ctx, false)
	if err != nil {
		return err
	}
	rule := func(action string) error {
		_, err := execute(context.WithoutCancel(ctx), "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", machine),
			"iptables", "--wait", action, "OUTPUT", "--destination", "10.231.0.1", "--protocol", "tcp", "--dport", "6443", "--jump", "DROP")
		return err
	}
	if err := rule("--insert"); err != nil {
		return err
	}
	pause(ctx, cutOff)
	err = rule("--delete")
	if _, gone := os.Stat(fmt.Sprintf("/proc/%d", machine)); errors.Is(gone, os.ErrNotExist) {
		return nil // and the rule with it
	}
	return err
}

// separation is a victim: two machines of a Workspace lose each other for a while, with their pods. Both still reach the
// API server.
func separation(ws *v1beta1.Workspace) victim {
	return victim{"two machines of the group lost each other", func(ctx context.Context) error {
		pair, err := pairOf(ctx, ws)
		if err != nil {
			return err
		}
		return separate(ctx, pair[0], pair[1])
	}}
}

// pairOf returns two running machines of a Workspace, as soon as there are two.
func pairOf(ctx context.Context, ws *v1beta1.Workspace) (pair []cloudMachine, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return pair, poll(ctx, func(ctx context.Context) (bool, error) {
		claims, err := claimsOf(ctx, ws.UID)
		if err != nil {
			return false, err
		}
		status, err := askCloud(ctx)
		if err != nil {
			return false, err
		}
		pair = nil
		for _, machine := range status.Machines {
			if machine.PID > 1 && slices.Contains(claims, machine.Name) {
				pair = append(pair, machine)
			}
		}
		return len(pair) == 2, fmt.Errorf("the Workspace has %d running machines, want 2", len(pair))
	})
}

// separate drops all packets between two machines for a while, by rules in the network of one of them. It drops those of
// the machines themselves and of their pods, in both directions.
func separate(ctx context.Context, one, other cloudMachine) error {
	theirs := other.Network.Address + "," + other.Network.PodCIDR
	rules := func(action string) error {
		var problems []error
		for _, rule := range [][]string{
			{"INPUT", "--source", theirs},
			{"OUTPUT", "--destination", theirs},
			{"FORWARD", "--source", theirs},
			{"FORWARD", "--destination", theirs},
		} {
			args := append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", one.PID), "iptables", "--wait", action}, rule...)
			_, err := execute(context.WithoutCancel(ctx), "nsenter", append(args, "--jump", "DROP")...)
			problems = append(problems, err)
		}
		return errors.Join(problems...)
	}
	if err := rules("--insert"); err != nil {
		return err
	}
	pause(ctx, cutOff)
	return rules("--delete")
}
