// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// IsWanted reports whether a set has autoscaling: by spec.autoscaling, or by KAITO's annotations.
func IsWanted(set *v1beta1.InferenceSet) bool {
	return set.Spec.Autoscaling != nil || set.Annotations[AnnotationAutoProvision] == "true"
}

// PolicyOf reads a set's policy. spec.autoscaling takes precedence over the annotations. Errors are sentences for
// users.
func PolicyOf(set *v1beta1.InferenceSet) (Policy, error) {
	if set.Spec.Autoscaling == nil {
		return fromAnnotations(set.Annotations)
	}
	out, err := fromSpec(set.Spec.Autoscaling)
	if err != nil {
		return Policy{}, fmt.Errorf("spec.autoscaling.%w", err)
	}
	return out, nil
}

// usualTargets returns the targets for an owner who sets none: they add replicas if those present are nearly full or
// have a queue.
func usualTargets() []Target {
	return []Target{{KVCacheUse, 0.7}, {WaitingRequests, 1}}
}

func fromSpec(spec *v1beta1.AutoscalingSpec) (Policy, error) {
	out := Policy{Min: 1, Down: Pace{Window: FollowsLead}, LeadPercentile: UsualLeadPercentile, IdleAfter: UsualIdleAfter}
	if spec.MinReplicas != nil {
		out.Min = int(*spec.MinReplicas)
	}
	if spec.MaxReplicas == nil {
		return out, errors.New("maxReplicas must be set: the largest number of replicas")
	}
	out.Max = int(*spec.MaxReplicas)
	if out.Max < out.Min {
		return out, fmt.Errorf("maxReplicas is %d, below minReplicas %d: raise maxReplicas", out.Max, out.Min)
	}
	if spec.LeadPercentile != nil {
		out.LeadPercentile = int(*spec.LeadPercentile)
	}
	if spec.IdleAfter != nil {
		out.IdleAfter = spec.IdleAfter.Duration
	}
	if spec.MaxHourlyPrice != "" {
		price, err := positive(spec.MaxHourlyPrice)
		if err != nil {
			return out, fmt.Errorf("maxHourlyPrice %w", err)
		}
		out.MaxHourlyPrice = price
	}
	out.Up, out.Down = paceOf(spec.ScaleUp, 0), paceOf(spec.ScaleDown, FollowsLead)
	if err := out.addTargets(spec.Targets); err != nil {
		return out, err
	}
	err := out.addSchedules(spec.Schedules)
	return out, err
}

func (p *Policy) addTargets(targets []v1beta1.AutoscalingTarget) error {
	for _, target := range targets {
		value, err := ParseTarget(Metric(target.Metric), target.Value)
		if err != nil {
			return fmt.Errorf("targets: %w", err)
		}
		p.Targets = append(p.Targets, Target{Metric(target.Metric), value})
	}
	if len(p.Targets) == 0 {
		p.Targets = usualTargets()
	}
	return nil
}

func (p *Policy) addSchedules(schedules []v1beta1.AutoscalingSchedule) error {
	for i := range schedules {
		s := &schedules[i]
		cron, err := ParseCron(s.Cron)
		if err != nil {
			return fmt.Errorf("schedules: cron of %s: %w", s.Name, err)
		}
		location, err := time.LoadLocation(s.TimeZone)
		if err != nil || location == time.Local { //nolint:gosmopolitan // refused, because it differs between machines
			return fmt.Errorf("schedules: timeZone of %s: %q is unknown: use a name such as Europe/Berlin", s.Name, s.TimeZone)
		}
		p.Schedules = append(p.Schedules, Schedule{
			Name: s.Name, Cron: cron, Location: location, Duration: s.Duration.Duration,
			Min: whole32(s.MinReplicas), Max: whole32(s.MaxReplicas),
		})
	}
	return nil
}

func whole32(value *int32) *int {
	if value == nil {
		return nil
	}
	out := int(*value)
	return &out
}

// usualPeriod is the default period of a pace.
const usualPeriod = time.Minute

func paceOf(spec *v1beta1.AutoscalingPace, window time.Duration) Pace {
	out := Pace{Window: window, Period: usualPeriod}
	if spec == nil {
		return out
	}
	set := func(into *time.Duration, value *metav1.Duration) {
		if value != nil && value.Duration >= 0 {
			*into = value.Duration
		}
	}
	set(&out.Window, spec.Window)
	set(&out.Period, spec.Period)
	if spec.Replicas != nil {
		out.Most = int(*spec.Replicas)
	}
	return out
}

// ParseTarget parses the target value of a metric.
func ParseTarget(metric Metric, text string) (float64, error) {
	switch metric {
	case RequestsInFlight, WaitingRequests, WaitingTokens:
		value, err := positive(text)
		if err != nil {
			return 0, fmt.Errorf("%s %w", metric, err)
		}
		return value, nil
	case KVCacheUse:
		share, isPercentage := strings.CutSuffix(text, "%")
		value, err := positive(share)
		if err != nil || !isPercentage || value > 100 {
			return 0, fmt.Errorf("%s is %q: it must be a percentage up to 100%%, such as 70%%", metric, text)
		}
		return value / 100, nil
	case TimeToFirstToken, TimePerOutputToken:
		value, err := time.ParseDuration(text)
		if err != nil || value <= 0 {
			return 0, fmt.Errorf("%s is %q: it must be a duration above zero, such as 2s or 80ms", metric, text)
		}
		return value.Seconds(), nil
	default:
		return 0, fmt.Errorf("%q is not a metric: use %s", metric, list(Metrics()))
	}
}

func positive(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value > 0) || math.IsInf(value, 0) {
		return 0, fmt.Errorf("is %q: it must be a number above zero", text)
	}
	return value, nil
}

func list(metrics []Metric) string {
	names := make([]string, len(metrics))
	for i, metric := range metrics {
		names[i] = string(metric)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
