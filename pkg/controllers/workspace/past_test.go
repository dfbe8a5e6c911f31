// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func TestPast(t *testing.T) {
	p := &past{versions: map[types.UID][]string{}}
	at := func(uid types.UID, version string) *v1beta1.Workspace {
		ws := &v1beta1.Workspace{}
		ws.UID, ws.ResourceVersion = uid, version
		return ws
	}
	write := func(ws *v1beta1.Workspace, next string, failure error) {
		err := p.write(ws, func() error {
			if !p.isOurs(ws) {
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
	} {
		if got := p.isPast(tc.ws); got != tc.want {
			t.Errorf("%s: is past: %v, want %v", tc.reason, got, tc.want)
		}
	}
	if len(p.versions) != 0 {
		t.Errorf("kept for good: %v", p.versions)
	}
}

// TestStatusChanged says which changes of a status have a Workspace looked at.
func TestStatusChanged(t *testing.T) {
	was, is := workspaceObject(), workspaceObject()
	was.ResourceVersion, is.ResourceVersion, is.Status.State = "1", "2", v1beta1.StateReady
	r := New(Config{})
	watches := r.watches()
	news := func(before, after *v1beta1.Workspace) bool {
		return watches.StatusChanged().Update(ctrlevent.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	if !news(was, is) {
		t.Error("what somebody else has written is no news")
	}
	if news(was, was.DeepCopy()) {
		t.Error("a change of something else is news of the status")
	}
	_ = r.past.write(was.DeepCopy(), func() error { return nil }) // nothing was written
	if !news(was, is) {
		t.Error("what somebody else has written is no news after a write that was none")
	}
	written := was.DeepCopy()
	if err := r.past.write(written, func() error { written.ResourceVersion = "2"; return nil }); err != nil {
		t.Fatal(err)
	}
	if news(was, is) {
		t.Error("what was written here is news")
	}
}
