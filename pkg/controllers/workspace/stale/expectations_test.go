// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func TestExpectations(t *testing.T) {
	p := NewExpectations()
	at := func(uid types.UID, version string) *v1beta1.Workspace {
		ws := &v1beta1.Workspace{}
		ws.Name, ws.UID, ws.ResourceVersion = "of-"+string(uid), uid, version
		return ws
	}
	write := func(ws *v1beta1.Workspace, next string, failure error) {
		err := p.Write(ws, func() error {
			if !p.IsOwn(ws) {
				t.Errorf("an event that comes before the answer to the write over %s is news", ws.ResourceVersion)
			}
			ws.ResourceVersion = next
			return failure
		})
		if !errors.Is(err, failure) {
			t.Errorf("error %v, want %v", err, failure)
		}
	}
	write(at("a", "1"), "2", nil)
	write(at("a", "2"), "4", nil)
	write(at("b", "7"), "7", nil)
	write(at("d", "8"), "8", errors.New("nobody answers"))
	write(at("e", "99"), "101", nil)
	write(at("f", "5"), "6", nil)
	f := at("f", "4")
	f.UID = "another"
	for _, tc := range []struct {
		reason string
		ws     *v1beta1.Workspace
		want   bool
	}{
		{"what was read first", at("a", "1"), true},
		{"what the first write came to", at("a", "2"), true},
		{"a write that changed nothing", at("b", "7"), false},
		{"a write that may not have been done", at("d", "8"), false},
		{"another Workspace of that version", at("c", "1"), false},
		{"what the last write came to", at("a", "4"), false},
		{"a version from which on everything is newer", at("a", "1"), false},
		{"an older version than the one overwritten", at("e", "98"), true},
		{"somebody else's write between the two", at("e", "100"), false},
		{"another one of that name", f, false},
	} {
		if got := p.IsStale(tc.ws); got != tc.want {
			t.Errorf("%s: is past: %v, want %v", tc.reason, got, tc.want)
		}
	}
	if len(p.overwritten) != 0 {
		t.Errorf("kept for good: %v", p.overwritten)
	}
}
