// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/progress"
)

// suspendedMessage names the machines that still run, or else explains how to resume.
func (p pass) suspendedMessage(why string) string {
	switch {
	case p.Workspace.HasKAITOsPods:
		return "the Workspace is suspended, but pods and machines of KAITO's controller still run and cost money: delete the " +
			"Workspace to stop them, revert the edit to keep them, or set suspend to false to " + why
	case p.Machines.Count > 0:
		return fmt.Sprintf("the Workspace is suspended, and the controller releases its machines (%d)", p.Machines.Count)
	}
	return "the Workspace is suspended: set suspend to false to " + why
}

// stalled returns the error that the user must fix; nil if there is none.
func stalled(facts *Facts, err error) *progress.StalledError {
	for _, problem := range []error{err, facts.Attempts.Err} {
		if out, ok := errors.AsType[*progress.StalledError](problem); ok {
			return out
		}
	}
	return facts.Plan.Err
}

// isNameTaken reports whether another object has the name of the endpoint.
func (p pass) isNameTaken() bool {
	return p.stalled != nil && p.stalled.Reason == v1beta1.ReasonNameTaken
}

func yes(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func no(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func unknown(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

// absent returns a condition without a status, which setConditions removes.
func absent(kind string) metav1.Condition { return metav1.Condition{Type: kind} }

func holds(condition metav1.Condition) bool { return condition.Status == metav1.ConditionTrue }
