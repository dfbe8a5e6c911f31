// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AutoscalingSpec is a policy for the number of replicas of an InferenceSet.
type AutoscalingSpec struct {
	// minReplicas is the smallest number of replicas; 0 allows the set to scale to zero. Unset means 1.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// maxReplicas is the largest number of replicas. Required.
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// targets for each replica. The target that needs the most replicas decides. Unset means KVCacheUse 70% and
	// WaitingRequests 1.
	// +kubebuilder:validation:MaxItems=6
	// +listType=map
	// +listMapKey=metric
	// +optional
	Targets []AutoscalingTarget `json:"targets,omitempty"`
	// scaleUp limits how fast replicas are added. Unset means no window and no limit.
	// +optional
	ScaleUp *AutoscalingPace `json:"scaleUp,omitempty"`
	// scaleDown limits how fast replicas are deleted. If its window is unset, it is the lead time: a replica that
	// idles that long costs as much as another start.
	// +optional
	ScaleDown *AutoscalingPace `json:"scaleDown,omitempty"`
	// schedules raise or lower the bounds at recurring times. If several apply at
	// once, the last one in the list that sets a bound wins.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Schedules []AutoscalingSchedule `json:"schedules,omitempty"`
	// maxHourlyPrice is the most that all replicas may cost together, in USD per hour, for example "40". It takes
	// precedence over minReplicas. Before the first replica has a plan, only one starts. Plans without a
	// known price are not limited.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	MaxHourlyPrice string `json:"maxHourlyPrice,omitempty"`
	// idleAfter is the time without a request in flight after which all replicas are deleted, with minReplicas 0.
	// Unset means 10m. Less than 1m counts as 1m.
	// +optional
	IdleAfter *metav1.Duration `json:"idleAfter,omitempty"`
	// leadPercentile is the percentile of the replicas' start-up times that counts as the lead time. Unset means 90.
	// +optional
	LeadPercentile *int32 `json:"leadPercentile,omitempty"`
}

// AutoscalingMetric names a signal of the engines.
//
// +kubebuilder:validation:MaxLength=32
type AutoscalingMetric string

// AutoscalingTarget is the target of a metric for each replica.
type AutoscalingTarget struct {
	// metric is RequestsInFlight, WaitingRequests, WaitingTokens, KVCacheUse, TimeToFirstToken or TimePerOutputToken.
	Metric AutoscalingMetric `json:"metric"`
	// value is a number for requests and tokens, a percentage such as 70% for KVCacheUse, and a duration such as 2s or
	// 80ms for a time. If a time is above its target, replicas are added; a time alone does not determine how many.
	// +kubebuilder:validation:MaxLength=16
	Value string `json:"value"`
}

// AutoscalingPace limits changes in one direction.
type AutoscalingPace struct {
	// window is how long the demand must point in one direction before the number of replicas changes.
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`
	// replicas is the largest number of replicas that may be added or deleted in each period; unset means no limit.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// period is the length of each period. Unset means 1m.
	// +optional
	Period *metav1.Duration `json:"period,omitempty"`
}

// AutoscalingSchedule replaces the bounds at recurring times.
type AutoscalingSchedule struct {
	// name of the schedule.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// cron is an expression of five fields: minute, hour, day, month, weekday.
	// +kubebuilder:validation:MaxLength=128
	Cron string `json:"cron"`
	// timeZone of cron, for example Europe/Berlin. Unset means UTC.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// duration is how long the schedule applies after each time of cron, at most 168h.
	Duration metav1.Duration `json:"duration"`
	// minReplicas in place of spec.autoscaling.minReplicas. The replicas are requested a lead time earlier.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// maxReplicas in place of spec.autoscaling.maxReplicas.
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}
