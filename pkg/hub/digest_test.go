// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDigestCheck(t *testing.T) {
	f := File{"org/model", "main", "a"}
	// The values are from sha256sum and git hash-object for "hello\n".
	sha := Digest{SHA256, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"}
	blob := Digest{GitBlob, "ce013625030ba8dba906f756967f9e9ca394464a"}
	for _, tc := range []struct {
		reason string
		digest Digest
		text   string
		want   error
	}{
		{"the right SHA-256", sha, "hello\n", nil},
		{"the right git object", blob, "hello\n", nil},
		{"other content", blob, "hallo\n", &ChecksumError{File: f, Want: blob, Got: "4cf5aa5f9a644263dbe3d6e78bcbef45487a802c"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			h := tc.digest.NewHash(int64(len(tc.text)))
			if _, err := io.Copy(h, strings.NewReader(tc.text)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tc.digest.Check(f, h)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseSHA256(t *testing.T) {
	for _, tc := range []struct {
		reason, in, want string
	}{
		{"lower case", testSHA256, testSHA256},
		{"upper case", strings.ToUpper(testSHA256), testSHA256},
		{"too short", "abc", ""},
		{"not hexadecimal", strings.Repeat("g", 64), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := ParseSHA256(tc.in)
			if got.Hex != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("ParseSHA256(%q) = %v, %v; want %q", tc.in, got, err, tc.want)
			}
		})
	}
}
