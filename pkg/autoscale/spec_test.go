// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
)

func TestPolicyOf(t *testing.T) {
	three := 3
	for name, c := range map[string]struct {
		reason, set string
		want        autoscale.Policy
		err         string
	}{
		"shortest": {
			reason: "one replica at least, replicas that are nearly full or a queue, down after a lead time",
			set:    "spec: {autoscaling: {maxReplicas: 4}}",
			want: autoscale.Policy{
				Min: 1, Max: 4, LeadPercentile: 90, IdleAfter: 10 * time.Minute,
				Targets: []autoscale.Target{{Metric: autoscale.KVCacheUse, Value: 0.7}, {Metric: autoscale.WaitingRequests, Value: 1}},
				Up:      autoscale.Pace{Period: time.Minute}, Down: autoscale.Pace{Window: autoscale.FollowsLead, Period: time.Minute},
			},
		},
		"all": {
			reason: "every field",
			set: `spec: {autoscaling: {minReplicas: 0, maxReplicas: 4, maxHourlyPrice: "12.5", idleAfter: 3m, leadPercentile: 50,
 targets: [{metric: TimeToFirstToken, value: 1500ms}, {metric: KVCacheUse, value: 80%}, {metric: WaitingTokens, value: "2e3"}],
 scaleUp: {replicas: 2}, scaleDown: {window: 0s, replicas: 1, period: 5m},
 schedules: [{name: day, cron: "0 8 * * 1-5", timeZone: Europe/Berlin, duration: 10h, minReplicas: 3}]}}`,
			want: autoscale.Policy{
				Min: 0, Max: 4, MaxHourlyPrice: 12.5, IdleAfter: 3 * time.Minute, LeadPercentile: 50,
				Targets: []autoscale.Target{
					{Metric: autoscale.TimeToFirstToken, Value: 1.5}, {Metric: autoscale.KVCacheUse, Value: 0.8}, {Metric: autoscale.WaitingTokens, Value: 2000},
				},
				Up: autoscale.Pace{Most: 2, Period: time.Minute}, Down: autoscale.Pace{Most: 1, Period: 5 * time.Minute},
				Schedules: []autoscale.Schedule{{Name: "day", Duration: 10 * time.Hour, Min: &three}},
			},
		},
		"annotations": {
			reason: "KAITO's: its metric and its pace",
			set: `metadata: {annotations: {scaledobject.kaito.sh/auto-provision: "true", scaledobject.kaito.sh/max-replicas: "5",
 scaledobject.kaito.sh/metricName: "vllm:num_requests_waiting", scaledobject.kaito.sh/threshold: "10"}}`,
			want: autoscale.Policy{
				Min: 1, Max: 5, LeadPercentile: 90, IdleAfter: 10 * time.Minute,
				Targets: []autoscale.Target{{Metric: autoscale.WaitingRequests, Value: 10}},
				Up:      autoscale.Pace{Window: time.Minute, Most: 1, Period: 5 * time.Minute},
				Down:    autoscale.Pace{Window: 5 * time.Minute, Most: 1, Period: 10 * time.Minute},
			},
		},
		"a list in an annotation": {
			reason: "the newer form",
			set: `metadata: {annotations: {scaledobject.kaito.sh/auto-provision: "true",
 scaledobject.kaito.sh/metrics: "[{name: 'vllm:num_requests_running', threshold: 20}, {name: 'vllm:kv_cache_usage_perc', threshold: '0.8'}]"}}`,
			want: autoscale.Policy{
				Min: 1, Max: 10, LeadPercentile: 90, IdleAfter: 10 * time.Minute,
				Targets: []autoscale.Target{{Metric: autoscale.RequestsInFlight, Value: 20}, {Metric: autoscale.KVCacheUse, Value: 0.8}},
				Up:      autoscale.Pace{Window: time.Minute, Most: 1, Period: 5 * time.Minute},
				Down:    autoscale.Pace{Window: 5 * time.Minute, Most: 1, Period: 10 * time.Minute},
			},
		},
		"no maximum":           {set: "spec: {autoscaling: {}}", err: "spec.autoscaling.maxReplicas must be set"},
		"maximum below":        {set: "spec: {autoscaling: {minReplicas: 3, maxReplicas: 2}}", err: "maxReplicas is 2, below minReplicas 3"},
		"unknown metric":       {set: "spec: {autoscaling: {maxReplicas: 2, targets: [{metric: Mood, value: '1'}]}}", err: `"Mood" is not a metric: use RequestsInFlight`},
		"count":                {set: "spec: {autoscaling: {maxReplicas: 2, targets: [{metric: WaitingRequests, value: NaN}]}}", err: "must be a number above zero"},
		"percentage":           {set: "spec: {autoscaling: {maxReplicas: 2, targets: [{metric: KVCacheUse, value: '0.7'}]}}", err: "such as 70%"},
		"duration":             {set: "spec: {autoscaling: {maxReplicas: 2, targets: [{metric: TimeToFirstToken, value: '2'}]}}", err: "such as 2s"},
		"cron":                 {set: "spec: {autoscaling: {maxReplicas: 2, schedules: [{name: a, cron: '61 * * * *', duration: 1h}]}}", err: "cron of a"},
		"time zone":            {set: "spec: {autoscaling: {maxReplicas: 2, schedules: [{name: a, cron: '* * * * *', timeZone: Moon, duration: 1h}]}}", err: "timeZone of a"},
		"annotated metric":     {set: "metadata: {annotations: {scaledobject.kaito.sh/metricName: mood, scaledobject.kaito.sh/threshold: '1'}}", err: `the metric "mood" is unknown`},
		"annotated threshold":  {set: "metadata: {annotations: {scaledobject.kaito.sh/auto-provision: 'true'}}", err: "threshold is"},
		"annotated maximum":    {set: "metadata: {annotations: {scaledobject.kaito.sh/max-replicas: many}}", err: "from 1 to 1000"},
		"annotated, malformed": {set: "metadata: {annotations: {scaledobject.kaito.sh/metrics: '{'}}", err: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1beta1.InferenceSet{}
			if err := yaml.UnmarshalStrict([]byte(c.set), set); err != nil {
				t.Fatal(err)
			}
			got, err := autoscale.PolicyOf(set)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			ignored := cmpopts.IgnoreFields(autoscale.Schedule{}, "Cron", "Location")
			if diff := cmp.Diff(c.want, got, ignored); err == nil && diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}
