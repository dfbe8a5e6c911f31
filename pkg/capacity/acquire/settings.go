// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Settings are the rules and deadlines by which machines are judged.
type Settings struct {
	// Rules classify the messages of clouds.
	Rules refusal.Rules
	// Deadlines of the stages of a machine.
	Deadlines refusal.Deadlines
	// NodeGrace is how long a node may be not Ready before it counts as lost; 0 means forever.
	NodeGrace time.Duration
	// FailureDeadline is how long the pods may fail permanently before their machines are released; 0 means forever.
	FailureDeadline time.Duration
	// IdleDeadline is how long machines may wait for the first ready pod before they are released; 0 means forever.
	IdleDeadline time.Duration
	// Wording selects the provider of the messages; nil means that of the NodeClass.
	Wording *refusal.Provider
}

// Provider returns the provider of the messages about machines of a node class.
func (s *Settings) Provider(class v1beta1.NodeClassReference) refusal.Provider {
	if s.Wording != nil {
		return *s.Wording
	}
	return refusal.ProviderOf(class.Group, class.Kind)
}
