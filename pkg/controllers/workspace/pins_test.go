// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

func TestPins(t *testing.T) {
	object := func(uid types.UID, raw string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "chat-1", UID: uid}, Data: runtime.RawExtension{Raw: []byte(raw)},
		}
	}
	one, two := `{"plan":{"instanceType":"one"}}`, `{"plan":{"instanceType":"two"}}`
	known := newPins()
	if _, err := known.decode(object("a", one)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reason string
		pins   *pins
		object *appsv1.ControllerRevision
		want   string
	}{
		{"it is kept", known, object("a", ""), "one"},
		{"another object of that name", known, object("b", two), "two"},
		{"one that the API server has not made is not kept", known, object("", one), "one"},
		{"nor is the next one taken for it", known, object("", two), "two"},
		{"a scope without any", nil, object("a", two), "two"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := test.pins.decode(test.object)
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != "chat-1" || got.Plan.InstanceType != test.want {
				t.Errorf("got %q of %s, want %q", got.Plan.InstanceType, got.Name, test.want)
			}
			got.Plan.InstanceType = "changed" // by a pass that makes another plan of it
		})
	}
	if got, err := known.decode(object("a", "")); err != nil || got.Plan.InstanceType != "one" {
		t.Errorf("after another pass has changed its own: %v, %v", got, err)
	}
}
