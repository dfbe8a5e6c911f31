// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clusterDir has what the tests on the local cloud push: the digest of a model, its signature, and the roots of trust.
const clusterDir = "../test/e2e/testdata/keyless"

// TestSignedForTheCluster verifies the signature that the tests on the local cloud use. With -update it makes a new one,
// by an authority of its own: whoever pushes another model there needs one. It stays valid, because it proves its time.
func TestSignedForTheCluster(t *testing.T) {
	read := func(file string) []byte {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(clusterDir, file))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	digest := strings.TrimSpace(string(read("digest")))
	if *update {
		signForTheCluster(t, digest)
	}
	trusted, err := readTrustedRoot(filepath.Join(clusterDir, "trusted_root.json"))
	if err != nil {
		t.Fatal(err)
	}
	asked := request{Bundle: read("bundle.json"), Digest: digest, PredicateType: predicate, Issuer: issuer, Subject: subject}
	if err := verifySignature(trusted, asked); err != nil {
		t.Error(err)
	}
}

var update = flag.Bool("update", false, "make the signature for the tests on the local cloud anew")

func signForTheCluster(t *testing.T, digest string) {
	t.Helper()
	by := authority(t)
	about := fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`,
		digest, predicate)
	roots, err := os.ReadFile(trust(t, by, false))
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		"trusted_root.json": roots, "bundle.json": encoded(t, signed(t, by, about, time.Now().Add(5*time.Minute))),
	} {
		if err := os.WriteFile(filepath.Join(clusterDir, file), append(content, '\n'), 0o644); err != nil { //nolint:gosec // test data
			t.Fatal(err)
		}
	}
}
