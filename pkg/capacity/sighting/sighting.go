// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sighting tells when an event happened last, which recorders write down in different fields.
package sighting

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Last is when an event was last seen.
func Last(event *corev1.Event) time.Time {
	at := event.CreationTimestamp.Time
	for _, other := range []time.Time{event.FirstTimestamp.Time, event.LastTimestamp.Time, event.EventTime.Time} {
		if other.After(at) {
			at = other
		}
	}
	if event.Series != nil && event.Series.LastObservedTime.After(at) {
		at = event.Series.LastObservedTime.Time
	}
	return at
}
