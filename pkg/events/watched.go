// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SubjectIndex is the index of a cache's events by their subject.
const SubjectIndex = "subject"

// Kept selects the events for a cache: events with these fields, without unused data.
func Kept(with fields.Set) cache.ByObject {
	return cache.ByObject{
		Field: fields.SelectorFromSet(with),
		Transform: func(object any) (any, error) {
			if event, ok := object.(*corev1.Event); ok {
				event.ManagedFields, event.Annotations, event.Labels = nil, nil, nil
			}
			return object, nil
		},
	}
}

// Index adds an index of events by their subject to a cache.
func Index(ctx context.Context, indexer client.FieldIndexer, subject client.IndexerFunc) error {
	if err := indexer.IndexField(ctx, &corev1.Event{}, SubjectIndex, subject); err != nil {
		return fmt.Errorf("indexing events: %w", err)
	}
	return nil
}

// Subject returns the UID of an event's object.
func Subject(object client.Object) []string {
	if event, ok := object.(*corev1.Event); ok {
		return []string{string(event.InvolvedObject.UID)}
	}
	return nil
}

// Watched returns a cache's events about a subject, in any order. Do not change them.
func Watched(ctx context.Context, cached client.Reader, subject string) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	if err := cached.List(ctx, list, client.MatchingFields{SubjectIndex: subject}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	return list.Items, nil
}

// Involved reads the object of an event. It reports whether the object exists and has the given kind.
func Involved(ctx context.Context, cached client.Reader, event client.Object, kind string, into client.Object) bool {
	published, ok := event.(*corev1.Event)
	if !ok || published.InvolvedObject.Kind != kind {
		return false
	}
	about := &published.InvolvedObject
	return cached.Get(ctx, types.NamespacedName{Namespace: about.Namespace, Name: about.Name}, into) == nil
}

// Newest returns the latest matching event, or nil. If times are equal, the result is still deterministic.
func Newest(all []corev1.Event, isMeant func(*corev1.Event) bool) *corev1.Event {
	var out *corev1.Event
	for i := range all {
		if event := &all[i]; isMeant(event) && (out == nil || later(event, out) > 0) {
			out = event
		}
	}
	return out
}

func later(a, b *corev1.Event) int {
	return cmp.Or(LastSeen(a).Compare(LastSeen(b)), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
}

// Text returns the message of an event without the prefix that recorders add when they combine events.
func Text(event *corev1.Event) string {
	return strings.TrimPrefix(event.Message, "(combined from similar events): ")
}
