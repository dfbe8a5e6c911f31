// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package warnings reads the events about objects that do not report why they are delayed. It reads them rarely, and must not
// know what they mean.
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
	// grace is the time before events about a silent object are read: most objects are through by then.
	grace = 20 * time.Second
	// askAgain is when to read events again while the object is silent. There is no watch on events.
	askAgain = time.Minute
)

// Reader reads events about silent objects, by Workspace and object. It may be lost: then they are read again.
type Reader struct {
	// Live reads past the caches.
	Live  client.Reader
	Clock clock.PassiveClock

	mu    sync.Mutex
	known map[types.UID]map[types.UID]hearing
}

// hearing holds the events about one object.
type hearing struct {
	// when it became silent, and when events were read last.
	since, asked time.Time
	warnings     []diagnosis.Warning
}

// of returns the events about objects of a Workspace, and forgets others.
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

// Read returns the events about silent objects of a Workspace, and when to read them again; 0 without such objects.
// isQuoted: the status quotes an event that another process has read, so it is read at once.
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
