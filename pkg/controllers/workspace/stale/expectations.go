// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stale finds passes over outdated objects: a cache shows an object until the event of its last write arrives.
// Such passes end without an effect, and the next one is soon.
//
// Expectations cover the writes of this process, and cost no request. Confirm covers everybody's writes, those of a former
// leader among them, before money is spent or something is deleted. The package must not know what a pass does.
package stale

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Expectations records the newest version of each object that this process has overwritten. The cache shows such versions
// until the event of the write arrives, and the API server refuses every write of a pass over one.
type Expectations struct {
	mu          sync.Mutex
	overwritten map[types.NamespacedName]version
}

// version is a version of an object; the zero value is none.
type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(object client.Object) version {
	return version{object.GetUID(), object.GetResourceVersion()}
}

// NewExpectations returns Expectations of no write.
func NewExpectations() *Expectations {
	return &Expectations{overwritten: map[types.NamespacedName]version{}}
}

// Write overwrites an object. Its version counts as overwritten from before the write, because the event may precede the
// response, unless the response rules a write out.
func (e *Expectations) Write(object client.Object, patch func() error) error {
	key, read := client.ObjectKeyFromObject(object), versionOf(object)
	former := e.replace(key, read)
	err := patch()
	if err != nil || versionOf(object) == read {
		e.replace(key, former)
	}
	return err
}

// replace sets the overwritten version of an object, and returns the former one.
func (e *Expectations) replace(key types.NamespacedName, by version) version {
	e.mu.Lock()
	defer e.mu.Unlock()
	former := e.overwritten[key]
	if e.overwritten[key] = by; by == (version{}) {
		delete(e.overwritten, key)
	}
	return former
}

// IsOwn reports whether this process has overwritten a version of an object, or a later one.
func (e *Expectations) IsOwn(before client.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.overwritten[client.ObjectKeyFromObject(before)]
	order, err := resourceversion.CompareResourceVersion(before.GetResourceVersion(), known.resourceVersion)
	return err == nil && order <= 0 && before.GetUID() == known.uid
}

// IsStale is IsOwn for an object from the cache. The record is dropped once the cache shows a later version.
func (e *Expectations) IsStale(shown client.Object) bool {
	isStale := e.IsOwn(shown)
	if !isStale {
		e.Forget(client.ObjectKeyFromObject(shown))
	}
	return isStale
}

// Forget drops what is known about an object.
func (e *Expectations) Forget(key types.NamespacedName) { e.replace(key, version{}) }
