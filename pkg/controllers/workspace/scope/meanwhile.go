// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/progress"
)

// servesSpec reports whether the pods run the current spec while other machines are acquired for them.
func (s *Scope) servesSpec() bool {
	if s.ServingAttempt() == nil || s.Previous == nil || s.Revision == nil {
		return false
	}
	return s.Previous.Name == s.Revision.Name ||
		s.Previous.Inputs != nil && s.Revision.Inputs != nil && equality.Semantic.DeepEqual(*s.Previous.Inputs, *s.Revision.Inputs)
}

// Meanwhile describes the serving attempt while other machines are acquired; empty if nothing serves.
func (s *Scope) Meanwhile() string {
	serving := s.ServingAttempt()
	if serving == nil || s.Previous == nil {
		return ""
	}
	text := fmt.Sprintf("; meanwhile attempt %d (%s) continues to serve", serving.Number, serving.InstanceType)
	if s.Surge.Trouble != "" {
		text += ", as long as it can: " + s.Surge.Trouble
	}
	return text
}

// ServeOn keeps the serving pods in order, whatever prevents the purchase of further machines.
func (s *Scope) ServeOn(err error) error {
	var after time.Duration
	if wait, ok := errors.AsType[*progress.WaitingError](err); ok {
		if after = wait.After; wait.IsBrief {
			after = stale.ShortestDelay
		}
	} else if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
		after = stalled.RetryAfter
	} else {
		return err
	}
	if after > 0 {
		s.LookAgain(after)
	}
	return nil
}
