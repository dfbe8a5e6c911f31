// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Dedication decides when machines get the taint of their Workspace. The taint keeps other pods away.
type Dedication string

// Dedications.
const (
	// Auto sets the taint unless it would keep a necessary DaemonSet off the machines.
	Auto Dedication = "Auto"
	// Enabled always sets it, and nothing is bought while it would keep such a DaemonSet off the machines.
	Enabled Dedication = "Enabled"
	// Disabled never sets it.
	Disabled Dedication = "Disabled"
)

// Dedications returns the allowed values.
func Dedications() []Dedication { return []Dedication{Auto, Enabled, Disabled} }

// IsDedicated reports whether the machines of a purchase get the taint of their Workspace: the pods and all necessary
// DaemonSets must tolerate it. It returns a *progress.StalledError if the policy is Enabled and a DaemonSet does not
// tolerate it.
func (c *Checker) IsDedicated(ctx context.Context, p Purchase) (bool, error) {
	isWanted := c.policy.Dedication == Auto || c.policy.Dedication == Enabled
	if !isWanted || !p.ToleratesDedication {
		return false, nil
	}
	problem, err := problemOf(ctx, c.reads, c.plugins(), func(found plugins) string {
		return found.undedicated(p.GPUResource, c.policy.Dedication)
	})
	if err != nil || problem == "" {
		return err == nil, err
	}
	if c.policy.Dedication == Enabled {
		return false, &progress.StalledError{
			Reason: v1beta1.ReasonTaintNotTolerated, RetryAfter: retry,
			Message: fmt.Sprintf("%s%s, or set the chart's capacity.dedicatedTaint to Auto", nothingBought, problem),
		}
	}
	if c.isNews(problem) {
		log.FromContext(ctx).Info("machines get no taint for their Workspace, so other pods that tolerate sku=gpu may use them",
			"reason", problem)
	}
	return false, nil
}

// isNews reports whether a problem differs from the last logged one, and records it as logged.
func (c *Checker) isNews(problem string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNews := c.logged != problem
	c.logged = problem
	return isNews
}

// undedicated returns why machines should not get the taint of their Workspace.
func (p plugins) undedicated(resource string, policy Dedication) string {
	problem := ExcludedDaemonSets(p.daemonSets)
	switch {
	case problem != "" || policy == Enabled:
		return problem
	case !p.isListed:
		return "the controller is not allowed to list DaemonSets"
	case !p.hasOperator || resource == "":
		return ""
	default: // the operator creates its DaemonSets once a node needs them, so the first node has no taint
		return missingTolerations(p.daemonSets, resource)
	}
}

// ExcludedDaemonSets returns a sentence about the DaemonSets that tolerate the taint of all our machines but not the
// taint of a Workspace, with the remedy; empty if there are none. Our machines need such a DaemonSet: it is the device
// plugin, for example.
func ExcludedDaemonSets(daemonSets []appsv1.DaemonSet) string {
	var excluded []string
	for i := range daemonSets {
		tolerations := daemonSets[i].Spec.Template.Spec.Tolerations
		if tolerates(tolerations, ours()) && !tolerates(tolerations, anyWorkspaces()) {
			excluded = append(excluded, daemonSets[i].Namespace+"/"+daemonSets[i].Name)
		}
	}
	if len(excluded) == 0 {
		return ""
	}
	slices.Sort(excluded)
	return fmt.Sprintf("the taint %s=UID:%s keeps DaemonSet %s off the machine, because the DaemonSet tolerates only "+
		"%s: add the toleration {key: %[1]s, operator: Exists, effect: %[2]s} to the DaemonSet",
		v1beta1.TaintKeyWorkspace, corev1.TaintEffectNoSchedule, strings.Join(excluded, ", "), ours().ToString())
}

// missingTolerations returns a sentence if there is no device plugin yet, because its tolerations are then unknown.
func missingTolerations(daemonSets []appsv1.DaemonSet, resource string) string {
	vendor, _, _ := strings.Cut(resource, ".")
	if slices.ContainsFunc(daemonSets, func(each appsv1.DaemonSet) bool { return isPlugin(&each, vendor) }) {
		return ""
	}
	return "there is no device plugin for " + resource + " yet, so its tolerations are unknown"
}

// anyWorkspaces is the taint of a Workspace's machines with a value that no toleration names.
func anyWorkspaces() *corev1.Taint {
	return &corev1.Taint{Key: v1beta1.TaintKeyWorkspace, Value: "*", Effect: corev1.TaintEffectNoSchedule}
}
