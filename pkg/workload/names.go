// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// maxName is the longest name of a StatefulSet. A label value has at most 63 characters, and the StatefulSet controller
// appends a dash and ten characters for the pods' label controller-revision-hash.
const maxName = 52

// NameProblem returns why a Workspace's name does not fit its objects; empty if it does.
func NameProblem(name string) string {
	switch {
	case name == "":
		return "the Workspace has no name: give it one in metadata.name"
	case len(name) > maxName:
		return fmt.Sprintf("metadata.name %q has %d characters, but at most %d are allowed, "+
			"because the StatefulSet labels its pods with its name and 11 more characters: create the Workspace again under a shorter name",
			name, len(name), maxName)
	case len(validation.IsDNS1035Label(name)) > 0:
		return fmt.Sprintf("metadata.name %q is not a valid name for a Service: create the Workspace again, "+
			"under a name of lower-case letters, digits and dashes that begins with a letter and ends with a letter or digit",
			name)
	}
	return ""
}

// maxGroupName is the longest name of a Workspace with a StatefulSet of workers.
const maxGroupName = maxName - len(workerSuffix)

// GroupNameProblem returns why a Workspace's name does not fit several machines; empty if it does.
func GroupNameProblem(name string) string {
	if len(name) <= maxGroupName {
		return NameProblem(name)
	}
	return fmt.Sprintf("metadata.name %q has %d characters, but at most %d are allowed if several machines serve, "+
		"because the StatefulSet %s%s labels its pods with its name and 11 more characters: create the Workspace again under a shorter name, "+
		"or allow a machine type that holds the model alone",
		name, len(name), maxGroupName, name, workerSuffix)
}

// workerSuffix is the suffix of the name of the workers' StatefulSet.
const workerSuffix = "-worker"

// WorkerName returns the name of the StatefulSet for all machines except the first.
func WorkerName(ws *v1beta1.Workspace) string {
	return ws.Name + workerSuffix
}

// IsSetOf reports whether a StatefulSet has one of the names of a Workspace's sets.
func IsSetOf(workspace, set string) bool {
	return workspace != "" && (set == workspace || set == workspace+workerSuffix)
}

// WorkerPod returns the name of the pod with a rank above 0.
func WorkerPod(ws *v1beta1.Workspace, rank int) string {
	return fmt.Sprintf("%s-%d", WorkerName(ws), rank)
}

// LeaderAddress returns the DNS name of the serving pod within the Workspace's namespace.
func LeaderAddress(ws *v1beta1.Workspace) string {
	return fmt.Sprintf("%s-0.%s", ws.Name, HeadlessName(ws))
}

// WorkerAddresses returns the DNS names of the other pods, by rank.
func WorkerAddresses(ws *v1beta1.Workspace, nodes int) []string {
	var list []string
	for rank := 1; rank < nodes; rank++ {
		list = append(list, WorkerPod(ws, rank)+"."+HeadlessName(ws))
	}
	return list
}

// HeadlessName returns the name of the Service for the addresses of single pods.
func HeadlessName(ws *v1beta1.Workspace) string {
	return ws.Name + "-headless"
}
