// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/hub"
)

func TestTrustAlso(t *testing.T) {
	commit := strings.Repeat("a", 40)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"sha":%q}`, commit) }))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	resolve := func(authorities []byte) error {
		client := hub.NewHTTPClient(1)
		if authorities != nil {
			if err := hub.TrustAlso(client, authorities); err != nil {
				t.Fatal(err)
			}
		}
		h, err := hub.New(hub.Options{Endpoint: server.URL, HTTP: client})
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Resolve(t.Context(), "org/model", "main")
		return err
	}
	if err := resolve(nil); !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Errorf("Resolve() = %v without the authority, want it unknown", err)
	}
	if err := resolve(authority); err != nil {
		t.Errorf("Resolve() = %v with the authority", err)
	}
	if err := hub.TrustAlso(hub.NewHTTPClient(1), []byte("nothing")); err == nil {
		t.Error("no error for a file without a certificate")
	}
	if err := hub.TrustAlso(http.DefaultClient, authority); err == nil {
		t.Error("no error for a foreign client")
	}
}
