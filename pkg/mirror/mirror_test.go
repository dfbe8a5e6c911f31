// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/modelberth/modelberth/pkg/cosign"
)

// made is a bundle under construction, and the key that signs it.
type made struct {
	t     *testing.T
	dir   string
	store layout.Path
	key   *ecdsa.PrivateKey
}

func begin(t *testing.T) *made {
	t.Helper()
	dir := t.TempDir()
	store, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	return &made{t, dir, store, newKey(t)}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func keysOf(t *testing.T, key *ecdsa.PrivateKey) []cosign.Key {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := cosign.ParseKeys(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func (m *made) image(reference string) v1.Hash {
	m.t.Helper()
	img, err := random.Image(64, 1)
	if err != nil {
		m.t.Fatal(err)
	}
	m.add(reference, img)
	digest, err := img.Digest()
	if err != nil {
		m.t.Fatal(err)
	}
	return digest
}

func (m *made) add(reference string, img v1.Image) {
	m.t.Helper()
	if err := m.store.AppendImage(img, layout.WithAnnotations(map[string]string{annotationReference: reference})); err != nil {
		m.t.Fatal(err)
	}
}

// sign adds a signature of the digest about, at the tag of the digest at.
func (m *made) sign(repository string, at, about v1.Hash) {
	m.t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"type":"cosign container image signature","image":{"docker-manifest-digest":%q}}}`, about)
	sum := sha256.Sum256(payload)
	value, err := ecdsa.SignASN1(rand.Reader, m.key, sum[:])
	if err != nil {
		m.t.Fatal(err)
	}
	const media = "application/vnd.dev.cosign.simplesigning.v1+json"
	img, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer: static.NewLayer(payload, media), MediaType: media,
		Annotations: map[string]string{annotationSignature: base64.StdEncoding.EncodeToString(value)},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.add(repository+":sha256-"+at.Hex+".sig", img)
}

// pack writes the bundle. edit may change each file.
func (m *made) pack(edit func(name string, data []byte) []byte) string {
	m.t.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	root := os.DirFS(m.dir)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if edit != nil {
			data = edit(name, data)
		}
		return errors.Join(archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}), write(archive, data))
	})
	return save(m.t, errors.Join(err, archive.Close()), out.Bytes())
}

func write(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

func save(t *testing.T, err error, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar")
	if err := errors.Join(err, os.WriteFile(file, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

func closed(t *testing.T, bundle *Bundle) {
	t.Helper()
	if err := bundle.Close(); err != nil {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	tests := []struct {
		reason string
		make   func(m *made)
		// foreign: verify with another key than the signer's.
		foreign bool
		want    string
	}{
		{reason: "everything is signed", make: func(m *made) {
			digest := m.image("a:1")
			m.sign("a", digest, digest)
		}},
		{reason: "one image of two is not signed", make: func(m *made) {
			digest := m.image("a:1")
			m.sign("a", digest, digest)
			m.image("b:1")
		}, want: "is not signed"},
		{reason: "the signature is about another image", make: func(m *made) {
			first, second := m.image("a:1"), m.image("a:2")
			m.sign("a", first, first)
			m.sign("a", second, first)
		}, want: "a:2"},
		{reason: "the signature lies in another repository", make: func(m *made) {
			digest := m.image("a:1")
			m.sign("b", digest, digest)
		}, want: "a:1"},
		{reason: "another key has signed", make: func(m *made) {
			digest := m.image("a:1")
			m.sign("a", digest, digest)
		}, foreign: true, want: "the signature was made with none of the trusted keys"},
		{reason: "the signature is no signature", make: func(m *made) {
			digest := m.image("a:1")
			m.image("a:sha256-" + digest.Hex + ".sig")
		}, want: "the signature was made with none of the trusted keys"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			m := begin(t)
			test.make(m)
			bundle, err := Open(m.pack(nil))
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, bundle)
			keys := keysOf(t, m.key)
			if test.foreign {
				keys = keysOf(t, newKey(t))
			}
			err = bundle.Verify(keys)
			if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	whole := begin(t)
	whole.image("a:1")
	entry := func(header tar.Header) []byte {
		var out bytes.Buffer
		archive := tar.NewWriter(&out)
		if err := errors.Join(archive.WriteHeader(&header), archive.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	tests := []struct {
		reason, file, want string
	}{
		{"a blob was changed", whole.pack(func(name string, data []byte) []byte {
			if strings.HasPrefix(name, blobs) {
				return append([]byte{'x'}, data...)
			}
			return data
		}), "the bundle is damaged"},
		{"an entry has no name", whole.pack(func(_ string, data []byte) []byte {
			return bytes.ReplaceAll(data, []byte(annotationReference), []byte("other"))
		}), "has no name"},
		{"a path leads out of the directory", save(t, nil, entry(tar.Header{Name: "../escaped"})), "escapes"},
		{"a link", save(t, nil, entry(tar.Header{Typeflag: tar.TypeSymlink, Name: "index.json", Linkname: "/etc/passwd"})), "not a regular file"},
		{"a huge file", save(t, nil, hugeHeader(t)), "more than"},
		{"no tar", save(t, nil, []byte(strings.Repeat("no tar ", 200))), "reading"},
		{"an empty tar", save(t, nil, make([]byte, 1024)), "not a bundle"},
		{"an empty layout", begin(t).pack(nil), "is empty"},
		{"no file", filepath.Join(t.TempDir(), "none"), "no such file"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			bundle, err := Open(test.file)
			if err == nil {
				t.Fatal(bundle.Close())
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want an error with %q", err, test.want)
			}
		})
	}
}

// hugeHeader announces a file that is larger than a bundle may have.
func hugeHeader(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := tar.NewWriter(&out).WriteHeader(&tar.Header{Name: "blob", Size: maxFile + 1}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A second push continues an interrupted one, and the pushed objects have the digests of the bundle.
func TestPushContinues(t *testing.T) {
	m := begin(t)
	first, second := m.image("a:1"), m.image("charts/b:1")
	file := m.pack(nil)
	inner, breaks := registry.New(registry.Logger(log.New(io.Discard, "", 0))), true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if breaks && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "charts/b/manifests") {
			http.Error(w, `{"errors":[{"code":"DENIED"}]}`, http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	bundle, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, bundle)
	to := Target{Registry: strings.TrimPrefix(server.URL, "http://") + "/mirror", Insecure: true, Keychain: authn.DefaultKeychain}
	var pushed []string
	note := func(reference string, _ Entry) { pushed = append(pushed, strings.TrimPrefix(reference, to.Registry)) }
	if err := bundle.Push(t.Context(), to, note); err == nil || !strings.Contains(err.Error(), "charts/b:1") {
		t.Errorf("got %v, want an error that names charts/b:1", err)
	}
	if diff := cmp.Diff([]string{"/a@" + first.String()}, pushed); diff != "" {
		t.Errorf("pushed before the refusal (-want +got):\n%s", diff)
	}
	breaks, pushed = false, nil
	if err := bundle.Push(t.Context(), to, note); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/a@" + first.String(), "/charts/b@" + second.String()}, pushed); diff != "" {
		t.Errorf("pushed after it (-want +got):\n%s", diff)
	}
}
