// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"path/filepath"
)

// showMachines shows the bought machines.
func (d *Demo) showMachines(ctx context.Context) error {
	d.console.Step("this is the bought machine and its node")
	for _, args := range [][]string{
		{"get", "nodeclaims"},
		{"get", "nodes", "--label-columns=node.kubernetes.io/instance-type,nvidia.com/gpu.product"},
		{"get", "workspaces"},
	} {
		if err := d.tools.show(ctx, d.console, args...); err != nil {
			return err
		}
	}
	return nil
}

// showFailure shows the first things to look at after a failure.
func (d *Demo) showFailure(ctx context.Context) {
	d.console.Step("it failed; these are the objects and their state")
	d.showAll(ctx, [][]string{
		{"describe", "--filename=" + d.settings.Manifest},
		{"get", "nodeclaims,nodes", "--output=wide"},
		{"get", "pods", "--all-namespaces", "--output=wide"},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"logs", "--selector=kaito.sh/workspace", "--all-containers", "--prefix", "--tail=20"},
	})
	d.showController(ctx)
}

// showController shows the controller's pods and last words.
func (d *Demo) showController(ctx context.Context) {
	d.showAll(ctx, [][]string{
		{"get", "pods", "--namespace=" + systemNamespace, "--output=wide"},
		{"get", "events", "--namespace=" + systemNamespace, "--sort-by=.lastTimestamp"},
		{"logs", "--namespace=" + systemNamespace, "--selector=app.kubernetes.io/name=modelberth", "--prefix", "--tail=20"},
	})
}

func (d *Demo) showAll(ctx context.Context, commands [][]string) {
	for _, args := range commands {
		if err := d.tools.show(ctx, d.console, args...); err != nil {
			d.console.Print(err.Error())
		}
	}
}

// showWayOn reports how to look around and how to stop.
func (d *Demo) showWayOn() {
	d.console.Step("the cluster stays up; look around:")
	d.console.Print("export KUBECONFIG=" + d.tools.kubeconfig + " PATH=" + filepath.Dir(d.tools.kubectl) + ":$PATH")
	d.console.Print("kubectl get workspaces --output=wide")
	d.console.Print("kubectl describe --filename=" + d.settings.Manifest)
	d.console.Print("kubectl get nodeclaims,nodes,pods --output=wide")
	d.console.Print("kubectl delete --filename=" + d.settings.Manifest + "    # gives the machine back")
	d.console.Step("stop it and leave nothing behind: make demo-down")
}
