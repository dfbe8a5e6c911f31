// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"crypto/sha256"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// settledLimit is how many objects are remembered, with some 200 bytes each; others are compared again.
const settledLimit = 4096

// settled remembers which version of an object matched, and the desired content: the comparison is most of the cost
// of a pass over an unchanged Workspace.
type settled struct{ seen *lru.Cache }

// match is one comparison: of this object in this version with this intent.
type match struct {
	version string
	desired [sha256.Size]byte
}

func newSettled() *settled { return &settled{seen: lru.New(settledLimit)} }

// note records that an object matches.
func (s *settled) note(desired, existing client.Object) {
	if found, ok := matchOf(desired, existing); ok {
		s.seen.Add(existing.GetUID(), found)
	}
}

// holds reports whether this version of the object was found to be as desired.
func (s *settled) holds(desired, existing client.Object) bool {
	known, ok := s.seen.Get(existing.GetUID())
	if !ok {
		return false
	}
	found, ok := matchOf(desired, existing)
	return ok && known == any(found)
}

// matchOf is false if the desired content has no cheap form. The wire format sorts maps: equal contents have equal
// bytes.
func matchOf(desired, existing client.Object) (match, bool) {
	wire, ok := desired.(interface{ Marshal() ([]byte, error) })
	if !ok || existing.GetUID() == "" {
		return match{}, false
	}
	encoded, err := wire.Marshal()
	return match{version: existing.GetResourceVersion(), desired: sha256.Sum256(encoded)}, err == nil
}
