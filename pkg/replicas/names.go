// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"k8s.io/apimachinery/pkg/util/rand"
)

// suffixLength is the number of characters after the dash of a replica's name.
const suffixLength = 5

// NameOverhead is the difference in length between the names of a replica and its set.
const NameOverhead = 1 + suffixLength

// Names returns count names for new replicas of a set, different from those of the existing ones. They follow from
// the arguments: a replica that is created twice exists once.
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

// suffix hashes an ordinal together with the set's UID: a recreated set does not wait for the replicas of the former
// one.
func suffix(uid string, ordinal uint32) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(uid), ordinal))
	return rand.SafeEncodeString(fmt.Sprintf("%x", sum))[:suffixLength]
}
