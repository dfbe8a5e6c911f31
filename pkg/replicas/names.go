// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"k8s.io/apimachinery/pkg/util/rand"
)

// suffixLength is the number of characters after the dash in a replica's name.
const suffixLength = 5

// NameOverhead is the number of characters by which a replica's name is longer than its set's name.
const NameOverhead = 1 + suffixLength

// Names returns count names for new replicas of a set that no existing replica has. The same arguments give the same
// names, so a repeated creation makes no second replica.
func Names(set, uid string, existing []Replica, count int) []string {
	taken := make(map[string]bool, len(existing))
	for _, replica := range existing {
		taken[replica.Name] = true
	}
	out := make([]string, 0, count)
	for ordinal := uint32(0); len(out) < count; ordinal++ {
		name := fmt.Sprintf("%s-%s", set, suffix(uid, ordinal))
		if !taken[name] {
			taken[name] = true
			out = append(out, name)
		}
	}
	return out
}

// suffix hashes an ordinal together with the set's UID. So a recreated set need not wait until the replicas of its
// predecessor are gone.
func suffix(uid string, ordinal uint32) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(uid), ordinal))
	return rand.SafeEncodeString(fmt.Sprintf("%x", sum))[:suffixLength]
}
