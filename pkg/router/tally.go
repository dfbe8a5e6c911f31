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
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/openai"
	"github.com/modelberth/modelberth/pkg/router/usage"
)

// tallies count the requests of the models that have two templates, by the ID of the model. The zero value is ready.
type tallies struct {
	mu   sync.Mutex
	byID map[string]*comparison.Set
}

// report returns the counts of the models that have two templates now.
func (t *tallies) report(now *models.Table) comparison.Report {
	out := comparison.Report{Sets: []comparison.Set{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prune(now)
	for _, set := range t.byID {
		out.Sets = append(out.Sets, *set)
	}
	slices.SortFunc(out.Sets, func(a, b comparison.Set) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// prune forgets the models that no longer have the counted templates.
func (t *tallies) prune(now *models.Table) {
	for id, set := range t.byID {
		if templateNow(now, id) != set.Template {
			delete(t.byID, id)
		}
	}
}

// templateNow returns the new template of a model; empty if all its replicas have the same.
func templateNow(table *models.Table, id string) string {
	owner := table.Set(id)
	if owner == nil || owner.Canary == nil {
		return ""
	}
	return owner.Canary.ID
}

// add adds counts for a template that the request saw as the new one. A request may end long after that.
func (t *tallies) add(owner *models.Owner, template string, isNew bool, counts comparison.Counts, now *models.Table) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set := t.byID[owner.ID()]
	if set == nil || set.Template != template {
		if template == "" || templateNow(now, owner.ID()) != template {
			return
		}
		t.prune(now)
		if t.byID == nil {
			t.byID = map[string]*comparison.Set{}
		}
		set = &comparison.Set{Namespace: owner.Namespace, Name: owner.Name, Template: template}
		t.byID[owner.ID()] = set
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
		x.router.tallies.add(x.owner, canary.ID, canary.Has(replica), counts, x.router.directory.Models())
	}
}

// outcome returns what a request shows about the replica that had it last; nothing if the client got the request wrong,
// or the outcome is counted already.
func (x *exchange) outcome(w *recorder, used usage.Tokens, now time.Time) comparison.Counts {
	status, isLate := x.status(w), x.failed != nil && x.failed.Code == openai.CodeDeadline
	switch {
	case x.isRefused, x.hold.Replica == x.dead, x.failed != nil && x.failed.Code == openai.CodeClientClosed:
		return comparison.Counts{}
	case isLate && !w.body.IsZero(), status == http.StatusNotImplemented, isClientError(status):
		return comparison.Counts{} // the client asked for too much, or for something else
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
