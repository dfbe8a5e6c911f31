// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDefinitions tests sequences of events that a watch delivers about the definition of Workspaces.
func TestDefinitions(t *testing.T) {
	type seen struct {
		generation int64
		lacks      []string // top-level fields
	}
	tests := []struct {
		reason     string
		seen       []seen
		want       []string
		isRestored bool
		changes    []string
	}{
		{"nothing was seen", nil, nil, false, nil},
		{"it is complete", []seen{{1, nil}, {2, nil}}, nil, false, nil},
		{"a field is missing from the start", []seen{{1, []string{"suspend"}}}, []string{"suspend"}, false, []string{"suspend"}},
		{
			"a field goes, and its status changes",
			[]seen{{1, nil}, {2, []string{"suspend"}}, {2, []string{"suspend"}}},
			[]string{"suspend"},
			false,
			[]string{"suspend"},
		},
		{
			"objects stay pruned in the caches after the field is back",
			[]seen{{1, nil}, {2, []string{"suspend"}}, {3, nil}},
			[]string{"suspend"},
			true,
			[]string{"suspend", ""},
		},
		{
			"another field is still missing",
			[]seen{{1, []string{"inference", "suspend"}}, {2, []string{"suspend"}}},
			[]string{"suspend"},
			false,
			[]string{"inference,suspend", "suspend"},
		},
		{
			"it is repaired twice",
			[]seen{{1, []string{"suspend"}}, {2, nil}, {3, []string{"inference"}}, {4, nil}},
			[]string{"inference"},
			true,
			[]string{"suspend", "", "inference", ""},
		},
		{"the watch was interrupted, and a field may have been missing", []seen{{1, nil}, {3, nil}}, nil, true, nil},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			var changes []string
			definitions := NewDefinitions(func(_ string, missing []string) { changes = append(changes, strings.Join(missing, ",")) })
			for _, seen := range test.seen {
				definition := shipped(t, Workspaces)
				definition.SetGeneration(seen.generation)
				for _, field := range seen.lacks {
					without(t, 0, field)(definition)
				}
				transform := definitions.Cache(Workspaces).Transform
				var kept any = definition
				for range 2 { // a cache may transform an object again
					var err error
					if kept, err = transform(kept); err != nil {
						t.Fatal(err)
					}
					if object, ok := kept.(*unstructured.Unstructured); !ok || object.Object["spec"] != nil {
						t.Fatalf("kept %T with its schemas", kept)
					}
				}
			}
			name, got := definitions.Missing(InferenceSets, Workspaces)
			if diff := cmp.Diff(test.want, got); diff != "" || (name == Workspaces) != (len(test.want) > 0) {
				t.Errorf("definition %q lacks (-want +got):\n%s", name, diff)
			}
			if name, _ := definitions.Missing(InferenceSets); name != "" {
				t.Errorf("definition %s lacks fields, and it was not seen", name)
			}
			if diff := cmp.Diff(test.changes, changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			isRestored := false
			select {
			case <-definitions.Restored():
				isRestored = true
			default:
			}
			if isRestored != test.isRestored {
				t.Errorf("restored: %t, want %t", isRestored, test.isRestored)
			}
		})
	}
}
