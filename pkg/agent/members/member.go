// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"errors"
	"fmt"
	"time"
)

// Identity is a member's answer about itself.
type Identity struct {
	// ID is new for every incarnation: the UID of the pod.
	ID string `json:"id"`
	// Group is the number of the group's incarnation. A pod with another number is not a member.
	Group int64 `json:"group"`
	// Draining is true while the member finishes its requests before it ends.
	Draining bool `json:"draining"`
}

const (
	// A known member counts as lost after lostAfter without an answer and lostMisses missed requests in a row. The time
	// alone is not enough: if this process was stopped for a while, one late request proves nothing.
	lostAfter  = 4 * time.Second
	lostMisses = 3
)

// member is the state of one name in the group. The zero value has never answered. It cannot be lost, because a slow
// start is not a loss.
type member struct {
	id       string
	answered time.Time
	misses   int
}

// hears returns the state after an answer, and a loss if the answer shows one.
func (m member) hears(self, answer Identity, at time.Time) (member, *LossError) {
	switch {
	case answer.Group != self.Group:
		return m.unheard(fmt.Errorf("a pod of group number %d answers under the member's name", answer.Group), at)
	case answer.ID == self.ID:
		// The name resolves to this pod. If it named another member before, DNS is out of date.
		return m.unheard(errors.New("the member's name resolves to this pod"), at)
	case m.id == "" || m.id == answer.ID:
		return member{id: answer.ID, answered: at}, nil
	}
	return m, &LossError{Was: m.id, Is: answer.ID}
}

// unheard returns the state after a request without a valid answer, and the loss that follows from it.
func (m member) unheard(err error, at time.Time) (member, *LossError) {
	if m.id == "" {
		return m, nil
	}
	m.misses++
	silent := at.Sub(m.answered)
	if m.misses < lostMisses || silent < lostAfter {
		return m, nil
	}
	return m, &LossError{Was: m.id, Silent: silent, Last: err}
}

// LossError is returned if the group is no longer whole.
type LossError struct {
	// Name of the member, and Was, the ID in its first answer.
	Name, Was string
	// Is has the ID of the pod that answers at the member's address; empty if no pod answers.
	Is string
	// Silent is the time without an answer, and Last the reason.
	Silent time.Duration
	Last   error
}

// IsReplacement reports whether another pod answers under the member's name.
func (l *LossError) IsReplacement() bool { return l.Is != "" }

func (l *LossError) Error() string {
	if l.IsReplacement() {
		return fmt.Sprintf("member %q of the group was replaced: pod %s answered before, and now pod %s", l.Name, l.Was, l.Is)
	}
	return fmt.Sprintf("member %q of the group (pod %s) has not answered for %s: %v", l.Name, l.Was, l.Silent.Round(time.Second/10), l.Last)
}

func (l *LossError) Unwrap() error { return l.Last }
