// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// behindTheOthers has a Workspace looked at again once all have been that wait for it now.
const behindTheOthers = time.Millisecond

// asked remembers the first machines of Workspaces that were asked for and are not written down yet: to say so costs
// the API server more than to ask for them, and of many Workspaces that come at once all are to ask first. It may be
// lost: the machines are found by whose they are.
type asked struct {
	mu   sync.Mutex
	news map[types.UID]news
}

// news is what a pass asked for.
type news struct {
	attempts []v1beta1.Attempt
	created  []capacity.Created
}

func newAsked() *asked { return &asked{news: map[types.UID]news{}} }

// postpone keeps what a pass asked for, if it was the first to ask for its Workspace, and nothing else is to be said.
func (a *asked) postpone(s *scope, err error) bool {
	if err != nil || s.capacityErr != nil || len(s.created) == 0 || !s.isFirstAttempt() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news[s.ws.UID] = news{attempts: cloneAttempts(s.attempts), created: slices.Clone(s.created)}
	return true
}

// recall tells a pass what was asked for and not written down.
func (a *asked) recall(s *scope) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.news[s.ws.UID]
	if !ok || len(s.ws.Status.Attempts) > 0 {
		delete(a.news, s.ws.UID)
		return
	}
	s.attempts, s.created = cloneAttempts(known.attempts), slices.Clone(known.created)
	s.lookAgain(cacheLag) // should they vanish before the cache shows them
}

// forget drops what has been written down, or is of a Workspace that is gone.
func (a *asked) forget(workspace types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.news, workspace)
}
