// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ledger records every NodeClaim ever made for a Workspace, from the first test to the last: it also sees a machine
// bought twice and released at once.
type ledger struct {
	mu sync.Mutex
	// bought are the claims by the UID of their Workspace, each once.
	bought map[string][]claim
	// launched are the launches of claims by name, as their conditions tell, and gone the times at which their end was seen.
	launched, gone map[string]time.Time
	// broken says why bookkeeping ended early.
	broken error
}

// unknownEnd is the longest time between the ends of a machine and of its claim, if no watch saw the claim's.
const unknownEnd = 30 * time.Second

type claim struct {
	name string
	uid  types.UID
}

// keepLedger books until the context ends.
func keepLedger(ctx context.Context, c client.WithWatch) (*ledger, error) {
	l := &ledger{bought: map[string][]claim{}, launched: map[string]time.Time{}, gone: map[string]time.Time{}}
	watcher, err := l.open(ctx, c)
	if err != nil {
		return nil, err
	}
	go func() {
		for ctx.Err() == nil {
			for event := range watcher.ResultChan() {
				l.book(event)
			}
			if ctx.Err() != nil {
				return
			}
			// The API server ends a watch now and then, and a test may kill it: the list of the next watch has the objects
			// made meanwhile.
			if watcher, err = l.reopen(ctx, c); err != nil {
				l.mu.Lock()
				l.broken = err
				l.mu.Unlock()
				return
			}
		}
	}()
	return l, nil
}

func (l *ledger) reopen(ctx context.Context, c client.WithWatch) (watcher watch.Interface, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return watcher, poll(ctx, func(ctx context.Context) (bool, error) {
		watcher, err = l.open(ctx, c)
		return err == nil, err
	})
}

func (l *ledger) open(ctx context.Context, c client.WithWatch) (watch.Interface, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(nodeClaimKind().GroupVersion().WithKind("NodeClaimList"))
	// Without a resource version, a watch begins with an event for each object that there is.
	watcher, err := c.Watch(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("watching NodeClaims: %w", err)
	}
	return watcher, nil
}

func (l *ledger) book(event watch.Event) {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch at := launchOf(object); {
	case event.Type == watch.Deleted:
		l.gone[object.GetName()] = time.Now()
	case !at.IsZero():
		l.launched[object.GetName()] = at
	}
	if event.Type != watch.Added {
		return
	}
	owner := object.GetLabels()[v1beta1.LabelWorkspaceUID]
	entry := claim{name: object.GetName(), uid: object.GetUID()}
	if !slices.Contains(l.bought[owner], entry) {
		l.bought[owner] = append(l.bought[owner], entry)
	}
}

// launchOf returns the launch of a claim's machine; zero before it.
func launchOf(claim *unstructured.Unstructured) time.Time {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(claim.Object, &status); err != nil {
		return time.Time{}
	}
	if launched := meta.FindStatusCondition(status.Status.Conditions, "Launched"); launched != nil && launched.Status == metav1.ConditionTrue {
		return launched.LastTransitionTime.Time
	}
	return time.Time{}
}

// preceded returns how long a machine existed before the launch in its claim. A launch that no watch saw counts as
// unknownEnd.
func (l *ledger) preceded(machine sale) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, isSeen := l.launched[machine.Name]
	if !isSeen {
		return unknownEnd
	}
	return max(at.Sub(machine.Created), 0)
}

// outlived returns how long the claim of a machine was seen after the machine was gone. A claim whose end no watch saw,
// because the API server was down, counts as unknownEnd.
func (l *ledger) outlived(machine sale) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, isSeen := l.gone[machine.Name]
	if !isSeen {
		return unknownEnd
	}
	return max(at.Sub(machine.Ended), 0)
}

// expect fails the test unless so many machines have been bought for the Workspace since it was made.
func (l *ledger) expect(t *testing.T, ws *v1beta1.Workspace, want int) {
	t.Helper()
	// A claim in the API server is on its way here: wait for the first, and check that no more than wanted come.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got []claim
	err := poll(ctx, func(context.Context) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		got = slices.Clone(l.bought[string(ws.UID)])
		return len(got) >= want, l.broken
	})
	if err != nil || len(got) != want {
		t.Errorf("%d machine(s) were bought for Workspace %s, want %d (%v): %v", len(got), ws.Name, want, err, got)
	}
}
