// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/planner"
)

// A load that is too much for one deployment is answered with several, not with a single request at a time.
func TestLoadBeyondOneDeployment(t *testing.T) {
	w := city(t)
	w.SKUs = w.SKUs[:1]
	for _, tc := range []struct {
		reason      string
		concurrency int
		want        string
	}{
		{"a little more than two machines hold", 150, "; an InferenceSet of 4 replicas with inference.objectives.concurrency: 38 serves it on Swift ($3.00/h) each, $12.00/h in all"},
		{"many times that", 3000, "; an InferenceSet of 67 replicas with inference.objectives.concurrency: 45 serves it on Swift ($3.00/h) each, $201.00/h in all"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := ask(t, w, planner.Request{Objectives: planner.Objectives{Concurrency: tc.concurrency, MaxModelLen: 8192}})
			if err == nil {
				t.Fatal("one deployment holds it")
			}
			got := regexp.MustCompile(`; an InferenceSet.*`).FindString(err.Error())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("way out of %v (-want +got):\n%s", err, diff)
			}
		})
	}
}
