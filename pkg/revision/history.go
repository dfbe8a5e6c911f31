// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
)

// History holds the revisions of one Workspace. The zero value has none.
type History struct {
	// Objects are the ControllerRevisions, oldest first.
	Objects []appsv1.ControllerRevision

	cache *cache
}

// Next returns the number of the next revision.
func (h History) Next() int64 {
	if count := len(h.Objects); count > 0 {
		return h.Objects[count-1].Revision + 1
	}
	return 1
}

// Object returns the ControllerRevision of that name, or nil.
func (h History) Object(name string) *appsv1.ControllerRevision {
	for i := range h.Objects {
		if h.Objects[i].Name == name {
			return &h.Objects[i]
		}
	}
	return nil
}

// Named returns the revision of that name; nil if there is none or it cannot be decoded.
func (h History) Named(name string) *Revision {
	if object := h.Object(name); object != nil {
		return h.decoded(object)
	}
	return nil
}

// Newest returns the latest decodable revision, or nil.
func (h History) Newest() *Revision {
	return h.newest(func(*appsv1.ControllerRevision) bool { return true })
}

// NewestLike returns the latest decodable revision with the inputs of an object, or nil.
func (h History) NewestLike(object *appsv1.ControllerRevision) *Revision {
	return h.newest(func(other *appsv1.ControllerRevision) bool { return HasSameInputs(other, object) })
}

func (h History) newest(isWanted func(*appsv1.ControllerRevision) bool) *Revision {
	for i := range slices.Backward(h.Objects) {
		if !isWanted(&h.Objects[i]) {
			continue
		}
		if out := h.decoded(&h.Objects[i]); out != nil {
			return out
		}
	}
	return nil
}

// decoded returns the content of an object; nil if it cannot be decoded.
func (h History) decoded(object *appsv1.ControllerRevision) *Revision {
	out, err := h.cache.decode(object)
	if err != nil {
		return nil
	}
	return out
}

// Match returns the newest revision with these inputs, or nil. While the status has a plan for the current generation,
// the revision of that plan matches, too, if the inputs outside the spec are the same: a new version of Modelberth may
// encode the same spec differently, and must not make a new plan only for that.
func (h History) Match(ws *v1beta1.Workspace, in render.Inputs) (*Revision, error) {
	hash, err := Hash(in)
	if err != nil {
		return nil, err
	}
	context, err := ContextHash(in)
	if err != nil {
		return nil, err
	}
	status := &ws.Status
	isPlanned := status.Plan != nil && status.ObservedGeneration == ws.Generation &&
		meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionPlanned)
	for i, object := range slices.Backward(h.Objects) {
		isNamed := isPlanned && status.Plan.Revision == object.Name
		if object.Annotations[v1beta1.AnnotationHash] == hash || isNamed && object.Annotations[v1beta1.AnnotationContext] == context {
			return h.cache.decode(&h.Objects[i])
		}
	}
	return nil, nil
}
