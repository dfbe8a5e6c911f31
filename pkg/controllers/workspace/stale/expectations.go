// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stale detects passes over outdated objects: a cache shows an object until the event of its last write
// arrives. Such passes end without effect, and are soon repeated.
//
// Expectations cover the writes of this process, and cost no request. Confirm covers everybody's writes, including
// those of a former leader, before money is spent or something is deleted. The package must not depend on the steps of
// a pass.
package stale

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Expectations records the newest version of each object that this process has overwritten. The cache shows that
// version until the event of the write arrives. Meanwhile, the API server refuses every write based on it.
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

// NewExpectations returns Expectations without any write.
func NewExpectations() *Expectations {
	return &Expectations{overwritten: map[types.NamespacedName]version{}}
}

// Write overwrites an object. The read version counts as overwritten even before the write, because the event may
// precede the response. It no longer counts if the write fails or changes nothing.
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

// IsOwn reports whether this process has overwritten this version of an object or a later one.
func (e *Expectations) IsOwn(before client.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.overwritten[client.ObjectKeyFromObject(before)]
	order, err := resourceversion.CompareResourceVersion(before.GetResourceVersion(), known.resourceVersion)
	return err == nil && order <= 0 && before.GetUID() == known.uid
}

// IsStale is IsOwn for an object from the cache. It drops the record once the cache shows a later version.
func (e *Expectations) IsStale(shown client.Object) bool {
	isStale := e.IsOwn(shown)
	if !isStale {
		e.Forget(client.ObjectKeyFromObject(shown))
	}
	return isStale
}

// Forget drops the record of an object.
func (e *Expectations) Forget(key types.NamespacedName) { e.replace(key, version{}) }
