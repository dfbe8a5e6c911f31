// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/lru"

	"github.com/modelberth/modelberth/pkg/render"
)

// cacheLimit bounds the cached revisions, of some 16 KB each. It suffices for the Workspaces with frequent passes.
const cacheLimit = 256

// cache keeps decoded revisions by their UIDs. The content of a revision never changes, each pass reads several
// revisions, and decoding took a third of a pass. Callers share the content and must not change it.
type cache struct{ decoded *lru.Cache }

func newCache() *cache { return &cache{decoded: lru.New(cacheLimit)} }

// decode returns the content of a ControllerRevision. A nil cache stores nothing.
func (c *cache) decode(object *appsv1.ControllerRevision) (*Revision, error) {
	if c != nil {
		known, _ := c.decoded.Get(object.UID)
		if decoded, ok := known.(render.Revision); ok {
			return &Revision{Name: object.Name, Revision: decoded}, nil
		}
	}
	decoded, err := render.Decode(object)
	if err != nil {
		return nil, err
	}
	if c != nil && object.UID != "" {
		c.decoded.Add(object.UID, decoded)
	}
	return &Revision{Name: object.Name, Revision: decoded}, nil
}
