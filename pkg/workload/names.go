// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// maxName is what remains of a label's 63 characters after the suffix that the StatefulSet controller
// appends to its name in the pods' label controller-revision-hash: a dash and ten characters.
const maxName = 52

// NameProblem says why a Workspace of that name cannot have the objects that are named after it;
// empty where it can.
func NameProblem(name string) string {
	switch {
	case name == "":
		return "the Workspace has no name: give it one in metadata.name"
	case len(name) > maxName:
		return fmt.Sprintf("metadata.name %q has %d characters and at most %d are possible, "+
			"because the StatefulSet appends 11 to label its pods: create the Workspace again under a shorter name",
			name, len(name), maxName)
	case len(validation.IsDNS1035Label(name)) > 0:
		return fmt.Sprintf("metadata.name %q cannot name a Service, which takes lower-case letters, digits and dashes, "+
			"begins with a letter and ends with a letter or digit: create the Workspace again under such a name",
			name)
	}
	return ""
}

// HeadlessName is the name of the Service by which a Workspace's pods find each other.
func HeadlessName(ws *v1beta1.Workspace) string {
	return ws.Name + "-headless"
}
