// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"fmt"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"
)

// Annotations of KAITO's scaler for KEDA, on an InferenceSet.
const (
	AnnotationAutoProvision = "scaledobject.kaito.sh/auto-provision"
	AnnotationMetricName    = "scaledobject.kaito.sh/metricName"
	AnnotationThreshold     = "scaledobject.kaito.sh/threshold"
	AnnotationMaxReplicas   = "scaledobject.kaito.sh/max-replicas"
	AnnotationMetrics       = "scaledobject.kaito.sh/metrics"
)

// Defaults for sets without these annotations.
const (
	annotatedMetric = "vllm:num_requests_waiting"
	annotatedMax    = 10
)

// metricOf returns the metric with this name in vLLM.
func metricOf(name string) (Metric, bool) {
	switch name {
	case "vllm:num_requests_waiting":
		return WaitingRequests, true
	case "vllm:num_requests_running":
		return RequestsInFlight, true
	case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc":
		return KVCacheUse, true
	case "vllm:time_to_first_token_seconds":
		return TimeToFirstToken, true
	case "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds":
		return TimePerOutputToken, true
	default:
		return "", false
	}
}

// fromAnnotations reads KAITO's annotations: one metric with a threshold, or a list of them. The pace and the minimum
// of 1 are the same as in KAITO's scaler.
func fromAnnotations(annotations map[string]string) (Policy, error) {
	out := Policy{
		Min: 1, Max: annotatedMax, LeadPercentile: UsualLeadPercentile, IdleAfter: UsualIdleAfter,
		Up:   Pace{Window: time.Minute, Most: 1, Period: 5 * time.Minute},
		Down: Pace{Window: 5 * time.Minute, Most: 1, Period: 10 * time.Minute},
	}
	if text, isSet := annotations[AnnotationMaxReplicas]; isSet {
		most, err := strconv.Atoi(text)
		if err != nil || most < 1 || most > 1000 {
			return out, fmt.Errorf("annotation %s is %q: it must be a number from 1 to 1000", AnnotationMaxReplicas, text)
		}
		out.Max = most
	}
	metrics := []annotated{{Name: annotations[AnnotationMetricName], Threshold: yamlTextual(annotations[AnnotationThreshold])}}
	if text, isSet := annotations[AnnotationMetrics]; isSet {
		metrics = nil
		if err := yaml.Unmarshal([]byte(text), &metrics); err != nil || len(metrics) == 0 {
			return out, fmt.Errorf("annotation %s cannot be read: it must be a YAML list of metrics with name and threshold", AnnotationMetrics)
		}
	}
	for _, metric := range metrics {
		target, err := metric.target()
		if err != nil {
			return out, err
		}
		out.Targets = append(out.Targets, target)
	}
	return out, nil
}

// annotated is a metric in an annotation.
type annotated struct {
	Name      string      `json:"name"`
	Threshold yamlTextual `json:"threshold"`
}

// yamlTextual is a number with or without quotes.
type yamlTextual string

// UnmarshalJSON accepts both forms.
func (t *yamlTextual) UnmarshalJSON(data []byte) error {
	if text, err := strconv.Unquote(string(data)); err == nil {
		*t = yamlTextual(text)
		return nil
	}
	*t = yamlTextual(data)
	return nil
}

func (a *annotated) target() (Target, error) {
	if a.Name == "" {
		a.Name = annotatedMetric
	}
	metric, ok := metricOf(a.Name)
	if !ok {
		return Target{}, fmt.Errorf("annotation %s: the metric %q is unknown: use one such as %s, or set spec.autoscaling",
			AnnotationMetricName, a.Name, annotatedMetric)
	}
	value, err := positive(string(a.Threshold))
	if err != nil {
		return Target{}, fmt.Errorf("annotation %s %w", AnnotationThreshold, err)
	}
	return Target{metric, value}, nil
}
