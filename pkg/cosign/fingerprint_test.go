// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign

import (
	"crypto/ed25519"
	"testing"
)

// TestFingerprint: the fingerprint changes exactly if other signatures would meet the requirements.
func TestFingerprint(t *testing.T) {
	const issuer = "https://accounts.example"
	key := func(seed byte) Key {
		return Key{ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed)).Public()}
	}
	of := func(roots string, required ...Requirement) string {
		t.Helper()
		out, err := Fingerprint(required, roots)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	admin, user := Requirement{Field: "a", Keys: []Key{key(1), key(2)}}, Requirement{Field: "b", Keys: []Key{key(3)}}
	identity := Requirement{Field: "c", Identity: &Identity{Issuer: issuer, Subject: "me@example"}}
	base := of("roots", admin, user, identity)
	for _, tc := range []struct {
		reason string
		got    string
		same   bool
	}{
		{"another order", of("roots", identity, user, admin), true},
		{"keys in another order, and one twice", of("roots", Requirement{Keys: []Key{key(2), key(1), key(2)}}, user, identity), true},
		{"other fields hold them", of("roots", Requirement{Keys: admin.Keys}, Requirement{Keys: user.Keys}, identity), true},
		{"a key less", of("roots", Requirement{Keys: []Key{key(1)}}, user, identity), false},
		{"one of all keys is enough", of("roots", Requirement{Keys: []Key{key(1), key(2), key(3)}}, identity), false},
		{"no identity", of("roots", admin, user), false},
		{"another subject", of("roots", admin, user, Requirement{Identity: &Identity{Issuer: issuer, Subject: "you@example"}}), false},
		{"the subject as a pattern", of("roots", admin, user, Requirement{Identity: &Identity{Issuer: issuer, SubjectRegExp: "me@example"}}), false},
		{"other roots of trust", of("other", admin, user, identity), false},
	} {
		if (tc.got == base) != tc.same {
			t.Errorf("%s: the same fingerprint: %v, want %v", tc.reason, tc.got == base, tc.same)
		}
	}
	if of("roots", admin) != of("other", admin) {
		t.Error("roots of trust matter for keys")
	}
	if got := of("roots"); got != "" {
		t.Errorf("no requirement: %q, want none", got)
	}
}
