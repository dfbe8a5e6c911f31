// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	offer := Offer{SKU: "A", Zone: "z1", CapacityType: "spot"}
	for _, test := range []struct {
		reason string
		rules  []Rule
		want   Outcome
	}{
		{reason: "without rules everything is sold", want: Accept},
		{reason: "an empty rule matches everything", rules: []Rule{{Outcome: NoCapacity}}, want: NoCapacity},
		{reason: "every field that is given must match", rules: []Rule{{SKU: "A", Zone: "z1", CapacityType: "spot", Outcome: Quota}}, want: Quota},
		{reason: "another type", rules: []Rule{{SKU: "B", Outcome: Quota}}, want: Accept},
		{reason: "another zone", rules: []Rule{{SKU: "A", Zone: "z2", Outcome: Quota}}, want: Accept},
		{reason: "another way of selling", rules: []Rule{{SKU: "A", CapacityType: "on-demand", Outcome: Quota}}, want: Accept},
		{reason: "the first match counts", rules: []Rule{{Zone: "z1", Outcome: Slow}, {SKU: "A", Outcome: Quota}}, want: Slow},
		{reason: "so an exception stands before the rule", rules: []Rule{{SKU: "A", Outcome: Accept}, {Outcome: NoCapacity}}, want: Accept},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := (Script{Rules: test.rules}).Decide(offer).Outcome; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	got, err := Parse([]byte(`{"rules":[{"sku":"A","outcome":"slow","delay":"20s"},{"outcome":"quota","message":"no more"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Script{Rules: []Rule{
		{SKU: "A", Outcome: Slow, Delay: metav1.Duration{Duration: 20 * time.Second}},
		{Outcome: Quota, Message: "no more"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ reason, text, wantErr string }{
		{"a misspelt field would make a rule match too much", `{"rules":[{"skus":"A","outcome":"quota"}]}`, `unknown field "skus"`},
		{"a misspelt outcome would sell", `{"rules":[{"outcome":"Quota"}]}`, `rules[0]: outcome "Quota" is unknown`},
		{"a rule without outcome says nothing", `{"rules":[{"sku":"A"}]}`, `rules[0]: outcome "" is unknown`},
		{"slow by how much", `{"rules":[{"outcome":"slow"}]}`, `needs a delay above zero`},
		{"a delay that nothing would wait for", `{"rules":[{"outcome":"quota","delay":"1s"}]}`, `delay 1s goes with outcome "slow" only`},
		{"half a file", `{"rules":[`, `decoding the script`},
	} {
		t.Run(test.reason, func(t *testing.T) {
			_, err := Parse([]byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("Parse says %v, want something with %q", err, test.wantErr)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script.json")
	got, err := Load(path)
	if err != nil || len(got.Rules) > 0 {
		t.Errorf("without a file: %v, %v; want no rules and no error", got, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("with a broken file the error is %v, want one that names it", err)
	}
}
