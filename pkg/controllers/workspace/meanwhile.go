// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/progress"
)

// servesSpec reports whether the pods run the current spec while other machines are acquired for them.
func (s *scope) servesSpec() bool {
	if s.heldAttempt() == nil || s.former == nil || s.revision == nil {
		return false
	}
	return s.former.Name == s.revision.Name ||
		s.former.Inputs != nil && s.revision.Inputs != nil && equality.Semantic.DeepEqual(*s.former.Inputs, *s.revision.Inputs)
}

// meanwhile describes the serving attempt while other machines are acquired; empty if nothing serves.
func (s *scope) meanwhile() string {
	held := s.heldAttempt()
	if held == nil || s.former == nil {
		return ""
	}
	text := fmt.Sprintf("; meanwhile attempt %d (%s) continues to serve", held.Number, held.InstanceType)
	if s.surge.Trouble != "" {
		text += ", as long as it can: " + s.surge.Trouble
	}
	return text
}

// serveOn keeps the serving pods in order, whatever prevents the purchase of further machines.
func (s *scope) serveOn(err error) error {
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
		s.lookAgain(after)
	}
	return nil
}
