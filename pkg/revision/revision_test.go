// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
)

// TestOnlyLowersPrice: only a lower limit counts. Every other change needs a new plan.
func TestOnlyLowersPrice(t *testing.T) {
	limited := func(limit string, types ...string) render.Inputs {
		return render.Inputs{Resource: v1beta1.ResourceSpec{Placement: &v1beta1.PlacementSpec{MaxHourlyPrice: limit, InstanceTypes: types}}}
	}
	tests := []struct {
		reason        string
		before, after render.Inputs
		want          bool
	}{
		{"lowered", limited("8"), limited("1"), true},
		{"raised", limited("1"), limited("8"), false},
		{"the same", limited("8"), limited("8"), false},
		{"taken away", limited("8"), render.Inputs{}, false},
		{"set where there was none", render.Inputs{}, limited("8"), true},
		{"lowered, and something else", limited("8"), limited("1", "Standard_NC24ads_A100_v4"), false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := OnlyLowersPrice(test.after, &test.before); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	if OnlyLowersPrice(limited("1"), nil) {
		t.Error("a revision without inputs, as an earlier version pinned it, cannot be compared")
	}
}

func TestCache(t *testing.T) {
	object := func(uid types.UID, raw string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "chat-1", UID: uid}, Data: runtime.RawExtension{Raw: []byte(raw)},
		}
	}
	one, two := `{"plan":{"instanceType":"one"}}`, `{"plan":{"instanceType":"two"}}`
	known := newCache()
	if _, err := known.decode(object("a", one)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reason string
		cache  *cache
		object *appsv1.ControllerRevision
		want   string
	}{
		{"a decoded revision is kept", known, object("a", ""), "one"},
		{"another object of that name is decoded", known, object("b", two), "two"},
		{"an object without a UID is not kept", known, object("", one), "one"},
		{"and is not taken for the next one", known, object("", two), "two"},
		{"a history without a cache", nil, object("a", two), "two"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := test.cache.decode(test.object)
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != "chat-1" || got.Plan.InstanceType != test.want {
				t.Errorf("got %q of %s, want %q", got.Plan.InstanceType, got.Name, test.want)
			}
			got.Plan.InstanceType = "changed" // as a pass does that makes another plan from it
		})
	}
	if got, err := known.decode(object("a", "")); err != nil || got.Plan.InstanceType != "one" {
		t.Errorf("after another pass has changed its own copy: %v, %v", got, err)
	}
}
