// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"errors"
	"fmt"
	"time"
)

// Identity is what a member says of itself.
type Identity struct {
	// ID is new for every incarnation: the UID of the pod.
	ID string `json:"id"`
	// Group numbers the attempts at running the group. Members of another number are not members.
	Group int64 `json:"group"`
	// Draining is true while the member finishes its answers before it ends.
	Draining bool `json:"draining"`
}

const (
	// lostAfter is how long a member that was met may be silent, and lostMisses how many questions in a row it
	// must have missed: when this process itself was halted for a while, one late question proves nothing.
	lostAfter  = 4 * time.Second
	lostMisses = 3
)

// member is what is known of one name in the group. The zero value has never been met: a start that takes
// long is no loss.
type member struct {
	id       string
	answered time.Time
	misses   int
}

// hears returns what is known after an answer, and the loss that it reveals.
func (m member) hears(self, answer Identity, at time.Time) (member, *LossError) {
	switch {
	case answer.Group != self.Group:
		return m.unheard(fmt.Errorf("it belongs to group number %d", answer.Group), at)
	case answer.ID == self.ID:
		// The name is our own. Where it was another's before, a name server lags behind.
		return m.unheard(errors.New("its name leads to this pod"), at)
	case m.id == "" || m.id == answer.ID:
		return member{id: answer.ID, answered: at}, nil
	}
	return m, &LossError{Was: m.id, Is: answer.ID}
}

// unheard returns what is known after a question without an answer that counts, and the loss that it reveals.
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

// LossError says that the group is no longer whole.
type LossError struct {
	// Name of the member, and its id when it was met.
	Name, Was string
	// Is the id of who answers in its place; empty where nobody does.
	Is string
	// Silent is how long nobody has answered, and Last why not.
	Silent time.Duration
	Last   error
}

// IsReplacement reports whether somebody else answers under the member's name.
func (l *LossError) IsReplacement() bool { return l.Is != "" }

func (l *LossError) Error() string {
	if l.IsReplacement() {
		return fmt.Sprintf("member %q of the group was replaced: pod %s was met and pod %s answers", l.Name, l.Was, l.Is)
	}
	return fmt.Sprintf("member %q of the group (pod %s) has not answered for %s: %v", l.Name, l.Was, l.Silent.Round(time.Second/10), l.Last)
}

func (l *LossError) Unwrap() error { return l.Last }
