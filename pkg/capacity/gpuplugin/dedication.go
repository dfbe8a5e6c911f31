// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuplugin

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Dedication says when machines have the taint of their Workspace, which keeps the pods of others away.
type Dedication string

// Dedications.
const (
	// Auto is where it keeps no DaemonSet away that comes to machines without it.
	Auto Dedication = "Auto"
	// Enabled is always: nothing is bought while it would keep such a DaemonSet away.
	Enabled Dedication = "Enabled"
	// Disabled is never.
	Disabled Dedication = "Disabled"
)

// Dedications are the values that may be set.
func Dedications() []Dedication { return []Dedication{Auto, Enabled, Disabled} }

// Excluded says which DaemonSets tolerate the taint of all our machines and not that of a Workspace's own, and what to do;
// empty where there are none. They are the device plugin, or what it needs, or what the administrator wants there: whoever
// tolerates everything is not among them.
func Excluded(daemonSets []appsv1.DaemonSet) string {
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
	return fmt.Sprintf("the taint %s=UID:%s would keep DaemonSet %s off the machine, which tolerates %s only: "+
		"add the toleration {key: %[1]s, operator: Exists, effect: %[2]s} to it",
		v1beta1.TaintKeyWorkspace, corev1.TaintEffectNoSchedule, strings.Join(excluded, ", "), ours().ToString())
}

// Unseen says that no device plugin is there yet whose tolerations could be read; empty where there is one.
func Unseen(daemonSets []appsv1.DaemonSet, resource string) string {
	vendor, _, _ := strings.Cut(resource, ".")
	if slices.ContainsFunc(daemonSets, func(each appsv1.DaemonSet) bool { return isPlugin(&each, vendor) }) {
		return ""
	}
	return "there is no DaemonSet yet that advertises " + resource + ", whose tolerations could be read"
}

// anyWorkspaces is the taint of machines of no Workspace in particular: nobody can tolerate its value alone.
func anyWorkspaces() *corev1.Taint {
	return &corev1.Taint{Key: v1beta1.TaintKeyWorkspace, Value: "*", Effect: corev1.TaintEffectNoSchedule}
}
