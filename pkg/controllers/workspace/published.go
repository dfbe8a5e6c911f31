// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/events"
)

const (
	// patience is the time before events about a silent object are read: most objects are through by then.
	patience = 20 * time.Second
	// askAgain is when to ask again, as long as it says nothing. There is no watch on events.
	askAgain = time.Minute
)

// published holds events about silent objects, by Workspace and object. It may be lost: then they are read again.
type published struct {
	mu    sync.Mutex
	known map[types.UID]map[types.UID]hearing
}

// hearing holds the events about one object.
type hearing struct {
	// since when it says nothing, and when events were read last.
	since, asked time.Time
	warnings     []diagnosis.Warning
}

// of returns the events about objects of a Workspace, and forgets others.
func (p *published) of(workspace types.UID, objects []types.UID) map[types.UID]hearing {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[types.UID]hearing, len(objects))
	for _, uid := range objects {
		out[uid] = p.known[workspace][uid]
	}
	return out
}

func (p *published) keep(workspace types.UID, known map[types.UID]hearing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(known) == 0 {
		delete(p.known, workspace)
		return
	}
	if p.known == nil {
		p.known = map[types.UID]map[types.UID]hearing{}
	}
	p.known[workspace] = known
}

// observePublished reads the events about delayed pods and sets without a reason of their own.
func (r *Reconciler) observePublished(ctx context.Context, s *scope) error {
	now := r.Clock.Now()
	silent := diagnosis.Silent(s.pods, s.sets())
	known := r.published.of(s.ws.UID, silent)
	for _, uid := range silent {
		heard := known[uid]
		if heard.since.IsZero() {
			heard.since = now
		}
		due := heard.since.Add(patience)
		switch {
		case !heard.asked.IsZero():
			due = heard.asked.Add(askAgain)
		case s.wasHeldUp():
			due = now // another process read it: it is to stand
		}
		if !now.Before(due) {
			var err error
			if heard.warnings, err = warnings(ctx, r.Live, s.ws.Namespace, uid, now); err != nil {
				return err
			}
			heard.asked, due = now, now.Add(askAgain)
		}
		s.lookAgain(due.Sub(now))
		known[uid] = heard
		s.warnings = append(s.warnings, heard.warnings...)
	}
	r.published.keep(s.ws.UID, known)
	return nil
}

// wasHeldUp says whether the status quotes an event.
func (s *scope) wasHeldUp() bool {
	was := meta.FindStatusCondition(s.before.Conditions, v1beta1.ConditionInferenceReady)
	return was != nil && slices.Contains(diagnosis.PublishedReasons(), was.Reason)
}

// warningAge is how long ago a warning may have been published last to count still.
const warningAge = 5 * time.Minute

// warnings about one object, by their text: those of several volumes take turns in being the newest.
func warnings(ctx context.Context, live client.Reader, namespace string, uid types.UID, now time.Time) ([]diagnosis.Warning, error) {
	list, err := events.About(ctx, live, namespace, uid)
	if err != nil {
		return nil, err
	}
	var out []diagnosis.Warning
	for i := range list {
		if item := &list[i]; item.Type == corev1.EventTypeWarning && now.Sub(events.LastSeen(item)) < warningAge {
			out = append(out, diagnosis.Warning{About: uid, Reason: item.Reason, Message: item.Message})
		}
	}
	slices.SortFunc(out, func(a, b diagnosis.Warning) int {
		return cmp.Or(strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
	})
	return out, nil
}
