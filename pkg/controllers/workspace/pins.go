// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/lru"

	"github.com/modelberth/modelberth/pkg/render"
)

// pinsLimit is how many decoded revisions are kept, of some 16 KB each: those of the Workspaces that are
// looked at again and again while something happens to them.
const pinsLimit = 256

// pins are the revisions that were decoded last, by their UIDs: what one pins never changes, every pass reads
// several of them, and to decode them was a third of a pass. Nobody writes to what they share.
type pins struct{ decoded *lru.Cache }

func newPins() *pins { return &pins{decoded: lru.New(pinsLimit)} }

// decode returns what a ControllerRevision pins. Nil pins keep nothing.
func (p *pins) decode(object *appsv1.ControllerRevision) (*revision, error) {
	if p != nil {
		known, _ := p.decoded.Get(object.UID)
		if decoded, ok := known.(render.Revision); ok {
			return &revision{Name: object.Name, Revision: decoded}, nil
		}
	}
	decoded, err := render.Decode(object)
	if err != nil {
		return nil, err
	}
	if p != nil && object.UID != "" {
		p.decoded.Add(object.UID, decoded)
	}
	return &revision{Name: object.Name, Revision: decoded}, nil
}
