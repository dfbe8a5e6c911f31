// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"crypto/sha256"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// settledLimit is the number of recorded objects, with about 200 bytes each. Others are compared again.
const settledLimit = 4096

// settled records the version of an object that matched, with the desired content. It saves the comparison, which is
// most of the cost of a pass over an unchanged Workspace.
type settled struct{ seen *lru.Cache }

// match is a successful comparison of a version of an object with the desired content.
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

// holds reports whether this version of the object is known to match desired.
func (s *settled) holds(desired, existing client.Object) bool {
	known, ok := s.seen.Get(existing.GetUID())
	if !ok {
		return false
	}
	found, ok := matchOf(desired, existing)
	return ok && known == any(found)
}

// matchOf returns the match to record; false if the desired object has no wire format. The wire format sorts maps, so
// equal contents have equal bytes.
func matchOf(desired, existing client.Object) (match, bool) {
	wire, ok := desired.(interface{ Marshal() ([]byte, error) })
	if !ok || existing.GetUID() == "" {
		return match{}, false
	}
	encoded, err := wire.Marshal()
	return match{version: existing.GetResourceVersion(), desired: sha256.Sum256(encoded)}, err == nil
}
