// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

var weights = bytes.Repeat([]byte("0123456789"), 10_000)

// push pushes an artifact of two files, and a layer without a file, into a registry.
func push(t *testing.T, image string) (digest string) {
	t.Helper()
	layer := func(content []byte, annotation, path string) mutate.Addendum {
		one := mutate.Addendum{Layer: static.NewLayer(content, "application/octet-stream")}
		if path != "" {
			one.Annotations = map[string]string{annotation: path}
		}
		return one
	}
	made, err := mutate.Append(empty.Image,
		layer(weights, titleAnnotation, "model.gguf"), layer([]byte("{}"), pathAnnotation, "sub/config.json"), layer([]byte("x"), "", ""))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, made, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	hash, err := made.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

func serve(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	s := httptest.NewServer(wrap(registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func open(t *testing.T, image string, keychain authn.Keychain) *Source {
	t.Helper()
	s, err := New(image, Options{HTTP: hub.NewHTTPClient(2), Keychain: keychain, Clock: clock.RealClock{}, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func digest(content []byte) hub.Digest {
	sum := sha256.Sum256(content)
	return hub.Digest{Algorithm: hub.SHA256, Hex: hex.EncodeToString(sum[:])}
}

// login returns a registry that requires a name and a password.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type me struct{}

func (me) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: "me", Password: "secret"}, nil
}

func TestSource(t *testing.T) {
	host := serve(t, func(h http.Handler) http.Handler { return h })
	pinned := push(t, host+"/models/small:v1")
	s := open(t, host+"/models/small:v1", authn.NewMultiKeychain())
	got, err := s.Resolve(t.Context(), "", "")
	if err != nil || got != pinned || !IsDigest(got) {
		t.Fatalf("Resolve() = %q, %v, want %q", got, err, pinned)
	}
	tree, err := s.Tree(t.Context(), "", pinned)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(tree, func(a, b hub.Entry) int { return strings.Compare(a.Path, b.Path) })
	want := []hub.Entry{
		{Path: "model.gguf", Size: int64(len(weights)), Digest: digest(weights)},
		{Path: "sub/config.json", Size: 2, Digest: digest([]byte("{}"))},
	}
	if diff := cmp.Diff(want, tree); diff != "" {
		t.Errorf("Tree() (-want +got):\n%s", diff)
	}
	// As after a restart, the digest is known, but no manifest is loaded.
	again := open(t, host+"/models/small:v1", authn.NewMultiKeychain())
	file := hub.File{Repo: s.Repository(), Revision: pinned, Path: "model.gguf"}
	meta, err := again.Stat(t.Context(), file)
	if err != nil || meta.Size != int64(len(weights)) || meta.SHA256 != digest(weights) {
		t.Errorf("Stat() = %+v, %v", meta, err)
	}
	body, err := again.Open(t.Context(), file, hub.Range{Start: 12_345, End: 23_456})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if part, err := io.ReadAll(body); err != nil || !bytes.Equal(part, weights[12_345:23_456]) {
		t.Errorf("%d bytes of a range (%v), want others", len(part), err)
	}
	if _, err := again.Stat(t.Context(), hub.File{Revision: pinned, Path: "nope"}); !errors.As(err, new(*hub.NotFoundError)) {
		t.Errorf("Stat() of no file = %v, want a NotFoundError", err)
	}
}

func TestCredentials(t *testing.T) {
	isOpen := true
	host := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isOpen {
				h.ServeHTTP(w, r)
				return
			}
			login(h).ServeHTTP(w, r)
		})
	})
	pinned := push(t, host+"/models/small:v1")
	isOpen = false
	if _, err := open(t, host+"/models/small:v1", authn.NewMultiKeychain()).Resolve(t.Context(), "", ""); !errors.As(err, new(*hub.UnauthorizedError)) {
		t.Errorf("Resolve() = %v without credentials, want an UnauthorizedError", err)
	}
	s := open(t, host+"/models/small@"+pinned, me{})
	body, err := s.Open(t.Context(), hub.File{Revision: pinned, Path: "model.gguf"}, hub.Range{Start: 0, End: 10})
	if err != nil {
		t.Fatalf("Open() = %v with credentials", err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	host := serve(t, func(h http.Handler) http.Handler { return h })
	push(t, host+"/models/small:v1")
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer busy.Close()
	for _, tc := range []struct {
		reason, image string
		want          any
	}{
		{"no such tag", host + "/models/small:v2", new(*hub.NotFoundError)},
		{"no such repository", host + "/models/large:v1", new(*hub.NotFoundError)},
		{"busy", strings.TrimPrefix(busy.URL, "http://") + "/models/small:v1", new(*hub.UnreachableError)},
		{"nobody there", "127.0.0.1:1/models/small:v1", new(*hub.UnreachableError)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if _, err := open(t, tc.image, authn.NewMultiKeychain()).Resolve(t.Context(), "", ""); !errors.As(err, tc.want) {
				t.Errorf("Resolve() = %v, want %T", err, tc.want)
			}
		})
	}
	if _, err := New("not a name", Options{}); err == nil {
		t.Error("no error for a name that is none")
	}
}

// A registry may redirect blobs to a store by a signed URL, which is secret.
func TestRegistrySignatureStaysOutOfErrors(t *testing.T) {
	const secret = "s3cret"
	for _, tc := range []struct{ reason, location string }{
		{"the store is away", "http://u:" + secret + "@127.0.0.1:1/blob?X-Amz-Signature=" + secret},
		{"the redirect is not a URL", "http://[::1/blob?sig=" + secret},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			host := serve(t, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
						w.Header().Set("Location", tc.location)
						w.WriteHeader(http.StatusTemporaryRedirect)
						return
					}
					h.ServeHTTP(w, r)
				})
			})
			pinned := push(t, host+"/models/small:v1")
			s := open(t, host+"/models/small@"+pinned, authn.NewMultiKeychain())
			body, err := s.Open(t.Context(), hub.File{Revision: pinned, Path: "model.gguf"}, hub.Range{Start: 0, End: 10})
			if err == nil {
				_ = body.Close()
			}
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("Open() = %v, want an error without the signature", err)
			}
		})
	}
}
