// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func TestPast(t *testing.T) {
	p := &past{versions: map[types.UID][]string{}}
	at := func(uid types.UID, version string) *v1beta1.Workspace {
		ws := &v1beta1.Workspace{}
		ws.UID, ws.ResourceVersion = uid, version
		return ws
	}
	p.note(at("a", "1"), at("a", "2"))
	p.note(at("a", "2"), at("a", "4"))
	p.note(at("b", "7"), at("b", "7"))
	for _, tc := range []struct {
		reason string
		ws     *v1beta1.Workspace
		want   bool
	}{
		{"what was read first", at("a", "1"), true},
		{"what the first write came to", at("a", "2"), true},
		{"a write that changed nothing", at("b", "7"), false},
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
