// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package warnings reads the events about delayed objects whose own status gives no reason. It reads them rarely, and
// must not depend on their meaning.
package warnings

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/events"
)

const (
	// grace is the time before the first read of events about a silent object. Most objects are no longer silent by
	// then.
	grace = 20 * time.Second
	// askAgain is the interval for reading events again while the object is silent, because no watch covers events.
	askAgain = time.Minute
)

// Reader reads and keeps events about silent objects, by Workspace and object. After a restart, it reads them again.
type Reader struct {
	// Live reads past the caches.
	Live  client.Reader
	Clock clock.PassiveClock

	mu    sync.Mutex
	known map[types.UID]map[types.UID]hearing
}

// hearing holds the events about one object.
type hearing struct {
	// since is when the object became silent, and asked is when its events were last read.
	since, asked time.Time
	warnings     []diagnosis.Warning
}

// of returns the kept events about objects of a Workspace.
func (p *Reader) of(workspace types.UID, objects []types.UID) map[types.UID]hearing {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[types.UID]hearing, len(objects))
	for _, uid := range objects {
		out[uid] = p.known[workspace][uid]
	}
	return out
}

func (p *Reader) keep(workspace types.UID, known map[types.UID]hearing) {
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

// Forget drops the events of a Workspace.
func (p *Reader) Forget(workspace types.UID) { p.keep(workspace, nil) }

// Read returns the events about silent objects of a Workspace, and the time until the next read; 0 without such
// objects. isQuoted means that the status quotes an event that another process has read, so Read reads the events at
// once.
func (p *Reader) Read(
	ctx context.Context, ws *v1beta1.Workspace, silent []types.UID, isQuoted bool,
) (out []diagnosis.Warning, again time.Duration, err error) {
	now := p.Clock.Now()
	known := p.of(ws.UID, silent)
	for _, uid := range silent {
		heard := known[uid]
		if heard.since.IsZero() {
			heard.since = now
		}
		due := heard.since.Add(grace)
		switch {
		case !heard.asked.IsZero():
			due = heard.asked.Add(askAgain)
		case isQuoted:
			due = now
		}
		if !now.Before(due) {
			if heard.warnings, err = warnings(ctx, p.Live, ws.Namespace, uid, now); err != nil {
				return nil, again, err
			}
			heard.asked, due = now, now.Add(askAgain)
		}
		if wait := due.Sub(now); again == 0 || wait < again {
			again = wait
		}
		known[uid] = heard
		out = append(out, heard.warnings...)
	}
	p.keep(ws.UID, known)
	return out, again, nil
}

// warningAge is the longest time since the last publication of a warning that still counts.
const warningAge = 5 * time.Minute

// warnings returns the warnings about one object, sorted by their text, because the warnings of several volumes take
// turns in being the newest.
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
