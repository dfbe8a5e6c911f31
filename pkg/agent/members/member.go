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
	// Group numbers the attempts at running the group. Members of another number are not members.
	Group int64 `json:"group"`
	// Draining is true while the member finishes its answers before it ends.
	Draining bool `json:"draining"`
}

const (
	// lostAfter is how long a known member may be silent, and lostMisses how many questions in a row it must have
	// missed. If this process itself was stopped for a while, one late question proves nothing.
	lostAfter  = 4 * time.Second
	lostMisses = 3
)

// member is the state of one name in the group. The zero value has never answered: a slow start is not a loss.
type member struct {
	id       string
	answered time.Time
	misses   int
}

// hears returns the state after an answer, and the loss that it reveals.
func (m member) hears(self, answer Identity, at time.Time) (member, *LossError) {
	switch {
	case answer.Group != self.Group:
		return m.unheard(fmt.Errorf("it belongs to group number %d", answer.Group), at)
	case answer.ID == self.ID:
		// The name is our own. If it was another's before, a name server lags behind.
		return m.unheard(errors.New("its name resolves to this pod"), at)
	case m.id == "" || m.id == answer.ID:
		return member{id: answer.ID, answered: at}, nil
	}
	return m, &LossError{Was: m.id, Is: answer.ID}
}

// unheard returns the state after a question without a valid answer, and the loss that it reveals.
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
	// Name of the member, and its id when it was met.
	Name, Was string
	// Is the id of the member that answers in its place; empty if none does.
	Is string
	// Silent is how long there has been no answer, and Last the reason.
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
