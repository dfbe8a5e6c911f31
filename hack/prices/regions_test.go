// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// surveyForm has machine types with an unchanged, a changed and an unknown price.
const surveyForm = `[
 {"instance_type": "g.large", "pricing": {
  "us-east-1": {"linux": {"ondemand": "1.006", "spot_min": "0.4"}, "mswin": {"ondemand": "2"}},
  "us-gov-west-1": {"linux": {"ondemand": "1.3"}},
  "eu-west-1": {"linux": {"ondemand": "1.123"}},
  "us-east-1-bos-1": {"linux": {"ondemand": "1.4"}},
  "eu-west-2-wl1-lon1": {"linux": {"ondemand": "1.5"}},
  "cn-north-1": {"linux": {"ondemand": "9"}},
  "eu-north-1": {"linux": {"ondemand": "N/A"}},
  "eu-south-1": {"mswin": {"ondemand": "3"}},
  "ap-south-1": ["unknown"]}},
 {"instance_type": "p.large", "pricing": {
  "us-east-1": {"linux": {"ondemand": "98.32"}}, "eu-west-1": {"linux": {"ondemand": "108"}}}},
 {"instance_type": "m.large", "pricing": {}}
]`

// A survey adds regions of types with unchanged prices, and replaces nothing.
func TestSurvey(t *testing.T) {
	surveyed := prices{}
	if err := surveyed.addInstances(write(t, surveyForm)); err != nil {
		t.Fatal(err)
	}
	now := table{onDemand: prices{
		"g.large": {"us-east-1": 1.006, "us-gov-west-1": 1.31},
		"p.large": {"us-east-1": 55.04},
		"x.large": {"us-east-1": 1},
	}}
	now.addSurvey(surveyed, "us-east-1")
	want := prices{
		"g.large": {"us-east-1": 1.006, "us-gov-west-1": 1.31, "eu-west-1": 1.123},
		"p.large": {"us-east-1": 55.04},
		"x.large": {"us-east-1": 1},
	}
	if diff := cmp.Diff(want, now.onDemand); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSurveyRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                           "decoding: EOF",
		`[]`:                         "it has no prices in a known form",
		`[{"instance_type": 1}]`:     "decoding: json: cannot unmarshal number into Go struct field .instance_type of type string",
		`[{"instance_type": "a.b"},`: "decoding: EOF",
	} {
		got := ""
		if err := (prices{}).addInstances(write(t, text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: error %q, want %q", text, got, want)
		}
	}
}
