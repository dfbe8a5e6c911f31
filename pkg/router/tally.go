// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/openai"
	"github.com/modelberth/modelberth/pkg/router/usage"
)

// tallies count the requests of the models that have two templates, by the ID of the model. The zero value is ready.
type tallies struct {
	mu   sync.Mutex
	byID map[string]*tally
}

// tally has the counts of a model under one split. If the sums ran over several, an outage of both templates while most
// requests reach the new one would make that look worse.
type tally struct {
	comparison.Set
	split balance.Split
	// ready are the largest numbers of ready replicas with each template. Replicas that crash and return do not change it:
	// otherwise, they would clear the counts of their failures.
	ready comparison.Replicas
}

// isOf reports whether the counts of a model continue for its present owner. The owner may be nil.
func (t *tally) isOf(owner *models.Owner) bool {
	if owner == nil || owner.Canary == nil || owner.Canary.ID != t.Template || owner.Canary.Split != t.split {
		return false
	}
	ready := readyOf(owner)
	return ready.New <= t.ready.New && ready.Previous <= t.ready.Previous
}

// readyOf returns how many replicas of an owner answer with each template.
func readyOf(owner *models.Owner) comparison.Replicas {
	canary := owner.Canary
	return comparison.Replicas{
		New: len(canary.Replicas), Previous: len(owner.Replicas) - len(canary.Replicas) - len(canary.Changing),
	}
}

// report returns the counts of the models that have two templates now.
func (t *tallies) report(now *models.Table) comparison.Report {
	out := comparison.Report{Sets: []comparison.Set{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prune(now)
	for _, set := range t.byID {
		out.Sets = append(out.Sets, set.Set)
	}
	slices.SortFunc(out.Sets, func(a, b comparison.Set) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// prune forgets the models that no longer have the counted split.
func (t *tallies) prune(now *models.Table) {
	for id, set := range t.byID {
		if !set.isOf(now.Set(id)) {
			delete(t.byID, id)
		}
	}
}

// add adds counts for a split that the request saw. A request may end long after that: under another split, it does not
// count.
func (t *tallies) add(seen *models.Owner, canary *balance.Canary, isNew bool, counts comparison.Counts, now *models.Table) {
	id := seen.ID()
	owner := now.Set(id)
	if owner == nil || owner.Canary == nil || owner.Canary.ID != canary.ID || owner.Canary.Split != canary.Split {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	set := t.byID[id]
	if set == nil || !set.isOf(owner) {
		t.prune(now)
		if t.byID == nil {
			t.byID = map[string]*tally{}
		}
		set = &tally{
			Set:   comparison.Set{Namespace: owner.Namespace, Name: owner.Name, Template: canary.ID},
			split: canary.Split, ready: readyOf(owner),
		}
		t.byID[id] = set
	}
	pair := comparison.Pair{Previous: counts}
	if isNew {
		pair = comparison.Pair{New: counts}
	}
	set.Pair = set.Pair.Plus(pair)
}

// tally counts for the template that a replica had when the request began, while the model has two. A replica with another
// template is another pod.
func (x *exchange) tally(replica string, counts comparison.Counts) {
	if canary := x.work.Canary; canary != nil && !canary.IsChanging(replica) && counts != (comparison.Counts{}) {
		x.router.tallies.add(x.owner, canary, canary.Has(replica), counts, x.router.directory.Models())
	}
}

// outcome returns the counts that a request adds for its last replica; none if the client made a mistake, or the
// outcome is counted already.
func (x *exchange) outcome(w *recorder, used usage.Tokens, now time.Time) comparison.Counts {
	status, isLate := x.status(w), x.failed != nil && x.failed.Code == openai.CodeDeadline
	switch {
	case x.isRefused, x.hold.Replica == x.dead, x.failed != nil && x.failed.Code == openai.CodeClientClosed:
		return comparison.Counts{}
	case isLate && !w.body.IsZero(), status == http.StatusNotImplemented, isClientError(status):
		return comparison.Counts{} // the client asked for too much, or for something else
	case x.pool != nil && status >= http.StatusInternalServerError:
		return comparison.Counts{} // it may be of the gateway, which may not even have reached the replica
	case status >= http.StatusInternalServerError, x.answer != nil && x.answer.IsBroken():
		return comparison.Counts{Failed: 1}
	}
	out := comparison.Counts{Served: 1}
	if x.fields.Stream && !w.body.IsZero() && x.dead == "" {
		out.FirstToken.Add(w.body.Sub(x.placed))
		if used.Completion > 1 {
			out.PerToken.Add(now.Sub(w.body) / time.Duration(used.Completion-1))
		}
	}
	return out
}
