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

func seconds(n int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Second}
}

func TestParse(t *testing.T) {
	want := Script{Cloud: Azure, Rules: []Rule{
		{SKU: "A*", Outcome: Slow, Delay: seconds(20)},
		{Zone: "z-?", CapacityType: "spot", Skip: 1, Times: 2, Outcome: Quota, Cloud: AWS, Kind: "zero", Message: "no more"},
		{Outcome: Dies, After: seconds(5), RemoveNode: true},
		{Outcome: GPUsLost, After: seconds(1), GPUs: 3},
		{Outcome: GPUFault, After: seconds(1), Condition: Condition{Type: "GPUs", Status: metav1.ConditionFalse}},
		{Outcome: NoGPUs, GPUs: 3},
		{Outcome: Evicted, After: seconds(1), Notice: seconds(30)},
	}}
	for _, test := range []struct{ reason, text string }{
		{"JSON", `{"cloud": "azure", "rules": [
			{"sku": "A*", "outcome": "slow", "delay": "20s"},
			{"zone": "z-?", "capacityType": "spot", "skip": 1, "times": 2, "outcome": "quota", "cloud": "aws", "kind": "zero", "message": "no more"},
			{"outcome": "dies", "after": "5s", "removeNode": true},
			{"outcome": "gpusLost", "after": "1s", "gpus": 3},
			{"outcome": "gpuFault", "after": "1s", "condition": {"type": "GPUs", "status": "False"}},
			{"outcome": "noGPUs", "gpus": 3},
			{"outcome": "evicted", "after": "1s", "notice": "30s"}]}`},
		{"YAML", `
cloud: azure
rules:
- {sku: A*, outcome: slow, delay: 20s}
- {zone: "z-?", capacityType: spot, skip: 1, times: 2, outcome: quota, cloud: aws, kind: zero, message: no more}
- {outcome: dies, after: 5s, removeNode: true}
- {outcome: gpusLost, after: 1s, gpus: 3}
- {outcome: gpuFault, after: 1s, condition: {type: GPUs, status: "False"}}
- {outcome: noGPUs, gpus: 3}
- {outcome: evicted, after: 1s, notice: 30s}
`},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := Parse([]byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("script (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ reason, text, want string }{
		{"half a file", `{"rules": [`, "decoding the script: "},
		{"a misspelt list would be no rules", `{"rule": []}`, `unknown field "rule"`},
		{"a cloud that speaks no language here", `{cloud: gcp, rules: []}`, `cloud: "gcp" is unknown: use one of azure, azure-arm, aws, gpu-provisioner`},
		{"a rule that is none", `{rules: [a]}`, `rules[0]."a" is not a rule: `},
		{"a misspelt field would make a rule match too much", `{rules: [{outcome: accept}, {outcome: quota, skus: A}]}`, `rules[1].skus: "A": unknown field "skus": use after, `},
		{"a field in another case", `{rules: [{outcome: quota, SKU: A}]}`, `rules[0].SKU: "A": unknown field "SKU"`},
		{"a field twice", `{"rules": [{"outcome": "quota", "sku": "A", "sku": "B"}]}`, `key "sku" already set`},
		{"a field of a field", `{rules: [{outcome: gpuFault, after: 1s, condition: {kind: a}}]}`, `rules[0].condition: {"kind":"a"}: unknown field "condition.kind"`},
		{"a misspelt outcome would sell", `{rules: [{outcome: Quota}]}`, `rules[0].outcome: "Quota" is unknown: use one of accept, noCapacity,`},
		{"a rule without outcome says nothing", `{rules: [{sku: A}]}`, `rules[0].outcome: "" is unknown`},
		{"a word for a number", `{rules: [{outcome: quota, times: three}]}`, `rules[0].times: "three": json: cannot unmarshal string`},
		{"a time without unit", `{rules: [{outcome: slow, delay: "20"}]}`, `rules[0].delay: "20": time: missing unit`},
		{"a time below zero", `{rules: [{outcome: slow, delay: -1s}]}`, `rules[0].delay: -1s is less than 0`},
		{"less than no attempts", `{rules: [{outcome: quota, times: -1}]}`, `rules[0].times: -1 is less than 0`},
		{"no pattern", `{rules: [{outcome: quota, zone: "a["}]}`, `rules[0].zone: "a[" is not a pattern: `},
		{"slow by how much", `{rules: [{outcome: slow}]}`, `rules[0].delay: missing: outcome "slow" needs a time above zero`},
		{"dead when", `{rules: [{outcome: dies}]}`, `rules[0].after: missing: outcome "dies"`},
		{"evicted with what notice", `{rules: [{outcome: evicted, after: 1s}]}`, `rules[0].notice: missing: outcome "evicted"`},
		{"a time that nothing waits for", `{rules: [{outcome: neverRegisters, after: 1s}]}`, `rules[0].after: 1s has no effect with outcome "neverRegisters": leave it out`},
		{"words of one who does not speak", `{rules: [{outcome: dies, after: 1s, message: a}]}`, `rules[0].message: a has no effect with outcome "dies": leave it out`},
		{"a kind that another cloud has", `{cloud: aws, rules: [{outcome: quota, kind: regional}]}`, `rules[0].kind: "regional" is unknown to cloud "aws" for outcome "quota": use one of family, zero, spot, or leave it out`},
		{"a cloud of one rule", `{rules: [{outcome: quota, cloud: gcp}]}`, `rules[0].cloud: "gcp" is unknown`},
		{"a status that no condition has", `{rules: [{outcome: gpuFault, after: 1s, condition: {status: "no"}}]}`, `rules[0].condition.status: "no" is unknown: use one of True, False, Unknown`},
	} {
		t.Run(test.reason, func(t *testing.T) {
			_, err := Parse([]byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Parse says\n  %v\nwant something with\n  %s", err, test.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script.yaml")
	got, edition, err := Load(file)
	if err != nil || len(got.Rules) > 0 || edition != "" {
		t.Errorf("without a file: %v, edition %q, %v; want no rules and no error", got, edition, err)
	}
	if err := os.WriteFile(file, []byte("rules: [{outcome: quota}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, first, err := Load(file)
	if err != nil || first == "" {
		t.Errorf("edition %q, error %v", first, err)
	}
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, second, err := Load(file); err != nil || second == first {
		t.Errorf("a file that was written again is edition %q as before (%v)", second, err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("with a broken file the error is %v, want one that names it", err)
	}
}
