// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/comparison"
)

// Routers count requests by template. The error of Compare explains why a count is missing, in words that stay the same.
type Routers interface {
	Compare(ctx context.Context, set types.NamespacedName, template string) (comparison.Pair, error)
}

const (
	// compareEvery is the time between two looks at the routers during a rollout.
	compareEvery = 15 * time.Second
	// comparedBy is the default of the field deadline.
	comparedBy = 15 * time.Minute
)

// Defaults of the fields of a comparison.
const (
	usualErrorMargin = 5
	usualRequests    = 100
)

var errNoRouter = errors.New("no router is installed: enable it in the chart")

// comparisonOf returns the policy for the comparison of two templates; nil if they are not compared.
func comparisonOf(set *v1beta1.InferenceSet) *v1beta1.ComparisonSpec {
	policy := rollbackOf(set)
	if policy == nil {
		return nil
	}
	return policy.Comparison
}

func marginsOf(policy *v1beta1.ComparisonSpec) comparison.Margins {
	return comparison.Margins{
		Errors:     int(ptr.Deref(policy.MaxErrorIncrease, usualErrorMargin)),
		FirstToken: int(ptr.Deref(policy.MaxTimeToFirstTokenIncrease, 0)),
		PerToken:   int(ptr.Deref(policy.MaxTimePerOutputTokenIncrease, 0)),
		Requests:   int(ptr.Deref(policy.MinRequests, usualRequests)),
	}
}

// compared is the state of the comparison with the previous template.
type compared struct {
	verdict comparison.Verdict
	// endedAt is when the rollout stopped waiting for it; nil if it waits, or nothing is compared.
	endedAt *metav1.Time
	// waits: the rollout goes no further until the comparison ends.
	waits bool
}

// compare compares the templates while both have ready replicas. Until the comparison passes, or its deadline does, the
// rollout goes no further. A router that cannot be read only delays it.
func (r *Reconciler) compare(ctx context.Context, p *pass) error {
	policy := comparisonOf(p.set)
	if policy == nil || !p.hasPrevious() || p.isRolledBack() || !p.set.DeletionTimestamp.IsZero() {
		return nil
	}
	ready, since := p.sides()
	switch {
	case ready.Previous == 0 || !p.hasReadyNew():
		return nil
	case ready.New == 0: // not for long enough
		was := p.recorded()
		p.compared.waits = was == nil || was.ComparedTime == nil
		return nil
	}
	var err error
	if p.compared.verdict, err = r.judge(ctx, p, marginsOf(policy), ready); err != nil {
		return err
	}
	now := r.Clock.Now()
	p.assessAt(now.Add(cmp.Or(r.CompareEvery, compareEvery)))
	p.endComparison(policy, since, metav1.NewTime(now))
	return nil
}

// judge reads the routers.
func (r *Reconciler) judge(
	ctx context.Context, p *pass, margins comparison.Margins, ready comparison.Replicas,
) (comparison.Verdict, error) {
	pair, err := comparison.Pair{}, errNoRouter
	if r.Routers != nil {
		pair, err = r.Routers.Compare(ctx, client.ObjectKeyFromObject(p.set), p.spec.hash)
	}
	if ctx.Err() != nil {
		return comparison.Verdict{}, fmt.Errorf("reading the routers: %w", ctx.Err())
	}
	if err != nil {
		return comparison.Unknown(err), nil
	}
	return comparison.Judge(pair, margins, ready), nil
}

// endComparison decides whether the rollout still waits for the comparison. Once it has gone on, it does not wait again.
func (p *pass) endComparison(policy *v1beta1.ComparisonSpec, since time.Time, now metav1.Time) {
	was := cmp.Or(p.recorded(), &v1beta1.RolloutStatus{StartTime: now})
	by := untilOf(policy, was, since)
	switch state := p.compared.verdict.State; {
	case state == comparison.Worse:
		p.compared.waits = true
	case was.ComparedTime != nil:
		p.compared.endedAt = was.ComparedTime
	case state == comparison.Passed || !now.Time.Before(by):
		p.compared.endedAt = &now
	default:
		p.assessAt(by)
		p.compared.waits = true
	}
}

// untilOf returns until when a rollout waits for the comparison. It starts to wait when the first replica with the new
// template is available. The replica may have been ready all the time, if its engine did not restart.
func untilOf(policy *v1beta1.ComparisonSpec, rollout *v1beta1.RolloutStatus, available time.Time) time.Time {
	begun, patience := []time.Time{available, rollout.StartTime.Time}, comparedBy
	if rollout.UpdateTime != nil {
		begun = append(begun, rollout.UpdateTime.Time)
	}
	if policy.Deadline != nil && policy.Deadline.Duration > 0 {
		patience = policy.Deadline.Duration
	}
	return slices.MaxFunc(begun, time.Time.Compare).Add(patience)
}

// sides returns how many replicas are available with the new template and ready with the previous one, and since when
// the first of the former is available.
func (p *pass) sides() (ready comparison.Replicas, since time.Time) {
	for i := range p.views {
		switch v := &p.views[i]; {
		case v.IsLeaving || !v.IsReady:
		case !v.isUpdated:
			ready.Previous++
		case v.isLabelled && v.IsProven:
			ready.New++
			if available := v.readySince.Add(minReadyOf(p.set)); since.IsZero() || available.Before(since) {
				since = available
			}
		}
	}
	return ready, since
}

// hasReadyNew reports whether a replica with the new template answers, however recently it became ready.
func (p *pass) hasReadyNew() bool {
	return slices.ContainsFunc(p.views, func(v view) bool { return v.isLabelled && v.IsReady && !v.IsLeaving })
}

// comparedWords explains the wait of a rollout for the comparison; empty if the rollout does not wait for it.
func (p *pass) comparedWords() string {
	if !p.compared.waits || p.compared.verdict.Message == "" || p.compared.verdict.State == comparison.Worse {
		return ""
	}
	return ". The comparison of the templates has no result yet: " + p.compared.verdict.Message
}
