// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/options"
)

// The controller fetches signatures as pods fetch weights: from a registry with a certificate of the authority in the
// company's ConfigMap.
func TestSignaturesAreReadOnTheWayOfPods(t *testing.T) {
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "https://") + "/model:v1")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := empty.Image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	payload := fmt.Appendf(nil, `{"critical":{"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"}}`, digest)
	signature, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer: static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{
			"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(ed25519.Sign(private, payload)),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	push := remote.WithTransport(server.Client().Transport)
	if err := remote.Write(tag, empty.Image, push); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag.Context().Tag(strings.Replace(digest.String(), ":", "-", 1)+".sig"), signature, push); err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := cosign.ParseKeys(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	if err != nil {
		t.Fatal(err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, tc := range []struct {
		reason      string
		weights     options.Weights
		authorities []byte
		want        bool
	}{
		{"the authority is known", options.Weights{}, authority, true},
		{"it is not", options.Weights{}, nil, false},
		{"its ConfigMap holds none", options.Weights{CAConfigMap: "ca"}, []byte("?"), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			verify := signatures(options.Controller{Weights: tc.weights}).Verify
			required := []cosign.Requirement{{Field: "publicKey", Keys: keys}}
			got, err := verify(t.Context(), cosign.Artifact{Reference: tag.Name(), Keychain: cosign.Credentials{}}, tc.authorities, required)
			if want := tag.Context().Digest(digest.String()).Name(); (err == nil) != tc.want || tc.want && got != want {
				t.Errorf("Verify() = %q, %v, want %s: %v", got, err, want, tc.want)
			}
		})
	}
}

// TestTrustedRoots distinguishes contents of the file, and reads nothing without one.
func TestTrustedRoots(t *testing.T) {
	if trustedRoots("") != nil {
		t.Error("there are roots of trust without a file")
	}
	path := filepath.Join(t.TempDir(), "trusted_root.json")
	roots := trustedRoots(path)
	if _, err := roots(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	seen := map[string]bool{}
	for _, content := range []string{"former", "former", "present"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := roots()
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = true
	}
	if len(seen) != 2 {
		t.Errorf("two contents are told apart as %d", len(seen))
	}
}
