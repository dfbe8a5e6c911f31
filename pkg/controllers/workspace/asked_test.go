// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// askedFirst is a pass that put the finalizer on, and asked for the first machine.
func askedFirst() *scope {
	s := newScope(workspaceObject())
	s.revision, s.isNew = accepted(1), true
	s.begin(s.revision, 1, []string{"chat-aaaa"}, now.Time)
	s.created = []capacity.Created{{Name: "chat-aaaa", UID: "claim-1"}}
	s.noteCreated(s.created, now.Time)
	s.seeCreated(s.created, now.Time)
	return s
}

// TestPostpone says which passes leave it to the next one to say what they did: those that others wait behind.
func TestPostpone(t *testing.T) {
	tests := []struct {
		reason string
		change func(*scope)
		err    error
		want   bool
	}{
		{"the first machine was asked for", func(*scope) {}, nil, true},
		{"the pass failed", func(*scope) {}, errors.New("the API server is away"), false},
		{"the machine could not be asked for", func(s *scope) { s.capacityErr = errors.New("forbidden") }, nil, false},
		{"nothing was asked for", func(s *scope) { s.created = nil }, nil, false},
		{"somebody has seen the Workspace before", func(s *scope) { s.isNew = false }, nil, false},
		{"it is not the first attempt", func(s *scope) {
			s.ws.Status.Attempts = []v1beta1.Attempt{{Number: 1, Reason: v1beta1.ReasonQuota}}
		}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := askedFirst()
			test.change(s)
			if got := newAsked().postpone(s, test.err); got != test.want {
				t.Errorf("postponed: %v, want %v", got, test.want)
			}
		})
	}
}

// TestRecall says what the next pass knows of what was asked for: all of it until it is written down, and once.
func TestRecall(t *testing.T) {
	a := newAsked()
	if !a.postpone(askedFirst(), nil) {
		t.Fatal("not postponed")
	}
	next := newScope(workspaceObject())
	a.recall(next)
	next.seeCreated(next.created, now.Time)
	if open := next.openAttempt(); open == nil || len(open.Claims) != 1 || open.Claims[0].UID != "claim-1" {
		t.Errorf("attempts %+v, want the one that asked for claim-1", next.attempts)
	}
	if machine := next.machine("chat-aaaa"); machine == nil || machine.UID != "claim-1" || machine.InstanceType == "" {
		t.Errorf("machines %+v, want the one that the cache does not show yet", next.machines)
	}
	if next.requeueAfter != cacheLag {
		t.Errorf("looks again after %v, want %v: it may vanish before the cache shows it", next.requeueAfter, cacheLag)
	}
	next.attempts[0].Message = "changed"
	if again := newScope(workspaceObject()); again != nil {
		a.recall(again)
		if again.attempts[0].Message != "" {
			t.Error("what one pass changes, the next one recalls")
		}
	}

	written := newScope(workspaceObject())
	written.ws.Status.Attempts = []v1beta1.Attempt{{Number: 1}, {Number: 2}}
	written.attempts = written.ws.Status.Attempts
	a.recall(written)
	if len(written.attempts) != 2 || len(written.created) != 0 {
		t.Errorf("attempts %+v, want those of the status", written.attempts)
	}
	if len(a.news) != 0 {
		t.Error("what is written down is remembered for ever")
	}
}
