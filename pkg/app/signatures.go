// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/net/http/httpproxy"

	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/planning"
)

// signatures returns the settings to verify signatures. The controller fetches signatures like weights: through the
// proxy of pods, and with the same certificate authorities.
func signatures(o options.Controller) planning.Signatures {
	proxy := (&httpproxy.Config{HTTPSProxy: o.Weights.HTTPSProxy, NoProxy: o.Weights.NoProxy}).ProxyFunc()
	return planning.Signatures{
		Registries: o.Artifacts.Registries, Signers: o.Artifacts.Signers, VerifiesIdentities: o.Artifacts.VerifierSocket != "",
		TrustedRoots: trustedRoots(o.Artifacts.TrustedRoot),
		Verify: func(ctx context.Context, artifact cosign.Artifact, authorities []byte, required []cosign.Requirement) (string, error) {
			client := hub.NewHTTPClient(1)
			defer client.CloseIdleConnections()
			if transport, ok := client.Transport.(*http.Transport); ok && o.Weights.HTTPSProxy != "" {
				transport.Proxy = func(request *http.Request) (*url.URL, error) { return proxy(request.URL) }
			}
			if len(authorities) > 0 {
				if err := hub.TrustAlso(client, authorities); err != nil {
					return "", fmt.Errorf("ConfigMap %q: %w", o.Weights.CAConfigMap, err)
				}
			}
			artifact.HTTP, artifact.Verifier = client.Transport, cosign.Verifier{Socket: o.Artifacts.VerifierSocket}
			return cosign.Verify(ctx, artifact, required...)
		},
	}
}

// trustedRoots returns a function that identifies the verifier's roots of trust, from their file; nil if there is no
// file.
func trustedRoots(path string) func() (string, error) {
	if path == "" {
		return nil
	}
	return func() (string, error) {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading the roots of trust: %w", err)
		}
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:]), nil
	}
}
