// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
)

// servesSpec reports whether the pods run the current spec while other machines are acquired for them.
func servesSpec(s *Scope) bool {
	if s.ServingAttempt() == nil || s.Previous == nil || s.Revision == nil {
		return false
	}
	return s.Previous.Name == s.Revision.Name ||
		s.Previous.Inputs != nil && s.Revision.Inputs != nil && equality.Semantic.DeepEqual(*s.Previous.Inputs, *s.Revision.Inputs)
}

// Meanwhile describes the serving attempt while other machines are acquired; empty if nothing serves.
func (s *Scope) Meanwhile() string {
	if s.KAITO.IsReplaced() {
		return "; meanwhile the pods of KAITO's controller continue to serve"
	}
	serving := s.ServingAttempt()
	if serving == nil || s.Previous == nil {
		return ""
	}
	text := fmt.Sprintf("; meanwhile attempt %d (%s) continues to serve", serving.Number, serving.InstanceType)
	if s.Surge.Fault != "" {
		text += " despite a fault: " + s.Surge.Fault
	}
	return text
}
