// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AutoscalingSpec is a policy for the number of replicas of an InferenceSet.
type AutoscalingSpec struct {
	// minReplicas is the smallest number of replicas; 0 lets the last one go. Unset means 1.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// maxReplicas is the largest number of replicas. Required.
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// targets of each replica. The one that asks for the most replicas counts. Unset means KVCacheUse 70% and
	// WaitingRequests 1.
	// +kubebuilder:validation:MaxItems=6
	// +listType=map
	// +listMapKey=metric
	// +optional
	Targets []AutoscalingTarget `json:"targets,omitempty"`
	// scaleUp limits how fast replicas are added. Unset means without a window or a limit.
	// +optional
	ScaleUp *AutoscalingPace `json:"scaleUp,omitempty"`
	// scaleDown limits how fast replicas are deleted. Its window is the lead time if it is unset: a replica that is
	// idle for so long costs as much as another start.
	// +optional
	ScaleDown *AutoscalingPace `json:"scaleDown,omitempty"`
	// schedules raise or lower the bounds at recurring times. Later ones beat earlier ones.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Schedules []AutoscalingSchedule `json:"schedules,omitempty"`
	// maxHourlyPrice is the most that all replicas may cost together, in USD per hour, for example "40". It beats
	// minReplicas. It has no effect while the price of a replica is unknown.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	MaxHourlyPrice string `json:"maxHourlyPrice,omitempty"`
	// idleAfter is how long nothing must be in flight before the last replica goes, with minReplicas 0. Unset means 10m.
	// +optional
	IdleAfter *metav1.Duration `json:"idleAfter,omitempty"`
	// leadPercentile selects the lead time from the start-ups of the set's replicas. Unset means 90.
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
	// 80ms for a time. A time above it adds replicas; a time alone does not say how many.
	// +kubebuilder:validation:MaxLength=16
	Value string `json:"value"`
}

// AutoscalingPace limits changes in one direction.
type AutoscalingPace struct {
	// window in which the demand must agree before the number changes.
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`
	// replicas is the most that change in each period; unset means no limit.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// period of replicas. Unset means 1m.
	// +optional
	Period *metav1.Duration `json:"period,omitempty"`
}

// AutoscalingSchedule has other bounds for a recurring time.
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
	// duration from each time of cron, at most 168h.
	Duration metav1.Duration `json:"duration"`
	// minReplicas in place of spec.autoscaling.minReplicas. The replicas are requested a lead time earlier.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// maxReplicas in place of spec.autoscaling.maxReplicas.
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}
