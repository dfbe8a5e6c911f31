// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events reads the events that the cluster's components publish about an object.
//
// It decides nothing. It must not know the meaning of the messages.
package events

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uidField selects events by the UID of their object.
const uidField = "involvedObject.uid"

// About returns the events about one object, newest first. It reads them from the API server, so live must not use a
// cache: no watch covers them. Events about objects without a namespace are in the namespace default. If the reader may
// not list events, About returns none, because no decision depends on events alone.
func About(ctx context.Context, live client.Reader, namespace string, uid types.UID) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := live.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{uidField: string(uid)})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing events about the object with UID %s: %w", uid, err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return LastSeen(&b).Compare(LastSeen(&a)) })
	return list.Items, nil
}

// LastSeen returns the last time of an event. Recorders set different fields.
func LastSeen(event *corev1.Event) time.Time {
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
