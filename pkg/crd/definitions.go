// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// annotationKept marks a cached object without its schemas.
const annotationKept = "modelberth.dev/kept"

// Definitions has the missing fields of the watched CustomResourceDefinitions. Once a definition has lacked fields, it
// counts as incomplete until the process ends. The caches hold objects without these fields. Their resource versions
// stay the same when the API server returns the fields again, so only a new process reads the fields.
type Definitions struct {
	// changed is called with the missing fields of a definition when they change.
	changed  func(name string, missing []string)
	mu       sync.Mutex
	known    map[string]known
	restored chan struct{}
}

// known is the state of a definition.
type known struct {
	generation int64
	// missing are the fields that are missing now. lost are the fields that were last missing.
	missing, lost []string
}

// NewDefinitions returns Definitions without missing fields. It calls changed with the missing fields of a definition
// when they change.
func NewDefinitions(changed func(name string, missing []string)) *Definitions {
	return &Definitions{changed: changed, known: map[string]known{}, restored: make(chan struct{})}
}

// Cache returns the options of a cache for one CustomResourceDefinition. The cache checks the fields before readers and
// handlers get the object. It keeps only the metadata, because the schemas have half a megabyte. A watch selects one
// name, so each definition needs its own cache.
func (d *Definitions) Cache(name string) cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name), Transform: d.keep}
}

func (d *Definitions) keep(object any) (any, error) {
	definition, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	if _, isKept := definition.GetAnnotations()[annotationKept]; isKept {
		return object, nil
	}
	d.observe(definition)
	out := Object()
	out.SetName(definition.GetName())
	out.SetUID(definition.GetUID())
	out.SetResourceVersion(definition.GetResourceVersion())
	out.SetAnnotations(map[string]string{annotationKept: "true"})
	return out, nil
}

func (d *Definitions) observe(definition *unstructured.Unstructured) {
	name, missing := definition.GetName(), Missing(definition)
	hasChanged := d.learn(name, definition.GetGeneration(), missing)
	if hasChanged {
		d.changed(name, missing)
	}
}

// learn records the missing fields of a definition, and reports whether they have changed. It closes restored if no
// field is missing now, but fields were missing before, or may have been in a generation that the watch skipped.
func (d *Definitions) learn(name string, generation int64, missing []string) (hasChanged bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	former, isKnown := d.known[name]
	next := known{generation: generation, missing: missing, lost: former.lost}
	if len(missing) > 0 {
		next.lost = missing
	}
	d.known[name] = next
	isUnseen := isKnown && generation > former.generation+1
	if len(missing) == 0 && (len(former.missing) > 0 || isUnseen) {
		select {
		case <-d.restored:
		default:
			close(d.restored)
		}
	}
	return !slices.Equal(former.missing, missing)
}

// Restored returns a channel that is closed when an incomplete definition becomes complete. The process must then read
// the objects again.
func (d *Definitions) Restored() <-chan struct{} { return d.restored }

// Missing returns the first of the named definitions that has lacked fields, with these fields; empty if there is none.
func (d *Definitions) Missing(names ...string) (name string, missing []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		if lost := d.known[name].lost; len(lost) > 0 {
			return name, lost
		}
	}
	return "", nil
}
