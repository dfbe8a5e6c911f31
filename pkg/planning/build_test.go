// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/sku"
)

// shelf is a catalogue with three machine types.
type shelf struct{ Catalog }

func (shelf) SKUs() []sku.SKU {
	return []sku.SKU{{Name: "Standard_NC4as_T4_v3"}, {Name: "Standard_ND96asr_v4"}, {Name: "g6.xlarge"}}
}

func (s shelf) ResolveSKU(name string) (sku.SKU, error) {
	for _, known := range s.SKUs() {
		if strings.EqualFold(known.Name, name) {
			return known, nil
		}
	}
	return sku.SKU{}, errors.New("unknown")
}

// TestRestrict: plans exclude machine types that the administrator does not allow, and naming one is an error.
func TestRestrict(t *testing.T) {
	tests := []struct {
		reason  string
		allowed []string
		named   string
		want    []string
		err     string
	}{
		{"no limit", nil, "", nil, ""},
		{"patterns, whatever their case", []string{"standard_nc*", "G6.xlarge"}, "", []string{"Standard_ND96asr_v4"}, ""},
		{"one that is named and allowed", []string{"g6.*"}, "g6.xlarge", []string{"Standard_NC4as_T4_v3", "Standard_ND96asr_v4"}, ""},
		{
			"one that is named and not allowed",
			[]string{"g6.*", "g5.*"},
			"standard_nc4as_t4_v3", nil,
			"resource.instanceType: the administrator does not allow Standard_NC4as_T4_v3: name one of g6.*, g5.*, or leave instanceType out",
		},
		{
			"one that nobody knows is the planner's to refuse",
			[]string{"*"},
			"Standard_NC5", nil, "",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			builder := NewBuilder(nil, shelf{}, Settings{})
			constraints, text := planner.Constraints{InstanceType: test.named}, ""
			err := builder.Restrict(&constraints, nil, Limits{InstanceTypes: test.allowed})
			if stalled, ok := errors.AsType[*progress.StalledError](err); ok && stalled.Reason == v1beta1.ReasonNoMachineAllowed {
				text = stalled.Message
			} else if err != nil {
				t.Fatal(err)
			}
			if text != test.err {
				t.Errorf("\n got %s\nwant %s", text, test.err)
			}
			var got []string
			for _, excluded := range constraints.Excluded {
				got = append(got, excluded.InstanceType)
				if want := "the administrator allows only " + strings.Join(test.allowed, ", "); excluded.Reason != want {
					t.Errorf("%s is left out because %q, want %q", excluded.InstanceType, excluded.Reason, want)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}
