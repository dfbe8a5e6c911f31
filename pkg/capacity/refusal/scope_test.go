// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseScope(t *testing.T) {
	tests := []struct {
		reason string
		text   string
		want   Scope
		err    string
	}{
		{"an offering", "offering/big/eastus-1/on-demand", offering("eastus-1", onDemand), ""},
		{"any zone was asked for", "offering/big//*", offering("", Any), ""},
		{"a machine type", "sku/big/*/spot", sku(spot), ""},
		{"a family with a space", "family/Standard NCASv3_T4 Family/*/spot", Scope{Family, "Standard NCASv3_T4 Family", Any, spot, ""}, ""},
		{"everything", "everything//*/*", everything(Any), ""},
		{"nothing", "", Scope{}, `scope "": it has the form breadth/name/zone/capacityType or breadth/name/zone/capacityType/nodeClass`},
		{"one node class", "sku/big/*/spot/large-disks", Scope{SKU, "big", Any, spot, "large-disks"}, ""},
		{"another breadth", "world//*/*", Scope{}, `scope "world//*/*": "world" is not offering, sku, family or everything`},
		{"a nameless machine type", "sku//*/*", Scope{}, `scope "sku//*/*": everything has no name, and any other scope has one`},
		{"everything by name", "everything/big/*/*", Scope{}, `scope "everything/big/*/*": everything has no name, and any other scope has one`},
		{"a machine type in a zone", "sku/big/z/*", Scope{}, `scope "sku/big/z/*": only an offering has a zone; write *`},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got, err := ParseScope(test.text)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(test.err, message); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("scope (-want +got):\n%s", diff)
			}
			if err == nil && got.String() != test.text {
				t.Errorf("written back as %q", got)
			}
		})
	}
}
