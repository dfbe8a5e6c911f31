// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modelberth/modelberth/pkg/cosign"
)

const (
	simpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	bundleType    = "application/vnd.dev.sigstore.bundle.v0.3+json"
	field         = "inference.weights.oci.verify.publicKey"
)

// shelf is a registry with one artifact.
type shelf struct {
	t         *testing.T
	reference string
	repo      name.Repository
	digest    v1.Hash
}

func newShelf(t *testing.T, wrap func(http.Handler) http.Handler, options ...registry.Option) *shelf {
	t.Helper()
	handler := registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...)
	if wrap != nil {
		handler = wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s := &shelf{t: t, reference: strings.TrimPrefix(server.URL, "http://") + "/team/model:v1"}
	ref, err := name.ParseReference(s.reference)
	if err != nil {
		t.Fatal(err)
	}
	s.repo = ref.Context()
	s.digest = s.push(ref, artifact(t, "weights"))
	return s
}

func artifact(t *testing.T, content string) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte(content), "application/octet-stream"))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func (s *shelf) push(ref name.Reference, image v1.Image) v1.Hash {
	s.t.Helper()
	digest, err := image.Digest()
	if err == nil {
		err = remote.Write(ref, image, remote.WithContext(s.t.Context()))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return digest
}

// tag adds signatures as cosign 2 does, at a tag.
func (s *shelf) tag(of v1.Hash, layers ...mutate.Addendum) {
	s.t.Helper()
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.push(s.repo.Tag("sha256-"+of.Hex+".sig"), image)
}

// refer adds a bundle as cosign 3 does, as a referrer.
func (s *shelf) refer(of v1.Hash, bundle []byte) {
	s.t.Helper()
	made, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), bundleType),
		mutate.Addendum{Layer: static.NewLayer(bundle, bundleType)})
	if err != nil {
		s.t.Fatal(err)
	}
	subject := v1.Descriptor{MediaType: types.DockerManifestSchema2, Digest: of, Size: 1}
	image, ok := mutate.Subject(made, subject).(v1.Image)
	if !ok {
		s.t.Fatal("no image")
	}
	digest, err := image.Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	s.push(s.repo.Digest(digest.String()), image)
}

// signer signs like cosign with a key of its kind.
type signer struct {
	t      *testing.T
	key    crypto.Signer
	hashes crypto.Hash
}

func newSigner(t *testing.T, key crypto.Signer, err error) signer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s := signer{t, key, crypto.SHA256}
	if _, ok := key.(ed25519.PrivateKey); ok {
		s.hashes = 0
	}
	return s
}

func newECDSA(t *testing.T) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return newSigner(t, key, err)
}

func (s signer) sign(message []byte) []byte {
	s.t.Helper()
	digest := message
	if s.hashes != 0 {
		sum := sha256.Sum256(message)
		digest = sum[:]
	}
	out, err := s.key.Sign(rand.Reader, digest, s.hashes)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s signer) pem() string {
	s.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func payload(kind string, digest fmt.Stringer) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"elsewhere"},"image":{"docker-manifest-digest":%q},"type":%q},"optional":null}`,
		digest, kind)
}

// layer returns a signature of cosign 2.
func (s signer) layer(message []byte) mutate.Addendum {
	return s.layerWith(message, base64.StdEncoding.EncodeToString(s.sign(message)))
}

func (s signer) layerWith(message []byte, signature string) mutate.Addendum {
	return mutate.Addendum{
		Layer: static.NewLayer(message, simpleSigning), Annotations: map[string]string{"dev.cosignproject.cosign/signature": signature},
	}
}

func (s signer) good(of v1.Hash) mutate.Addendum {
	return s.layer(payload("cosign container image signature", of))
}

// bundle returns a signature of cosign 3.
func (s signer) bundle(of v1.Hash, predicate string) []byte {
	s.t.Helper()
	const kind = "application/vnd.in-toto+json"
	body := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`, of.Hex, predicate)
	out, err := json.Marshal(map[string]any{
		"mediaType":            bundleType,
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": "a"}},
		"dsseEnvelope": map[string]any{
			"payload": []byte(body), "payloadType": kind,
			"signatures": []any{map[string]any{"sig": s.sign(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(body), body))}},
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *shelf) verify(signers ...signer) (string, error) {
	s.t.Helper()
	var required []cosign.Requirement
	for i, one := range signers {
		keys, err := cosign.ParseKeys(one.pem())
		if err != nil {
			s.t.Fatal(err)
		}
		required = append(required, cosign.Requirement{Field: []string{field, "weights.oci.requireVerify"}[i], Keys: keys})
	}
	artifact := cosign.Artifact{Reference: s.reference, Keychain: cosign.Credentials{}, HTTP: http.DefaultTransport}
	return cosign.Verify(s.t.Context(), artifact, required...)
}

const signPredicate = "https://sigstore.dev/cosign/sign/v1"

// Weights are accepted only with a signature of their digest by the right key.
func TestVerify(t *testing.T) {
	ours, others := newECDSA(t), newECDSA(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	byRSA := newSigner(t, rsaKey, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	byEd25519 := newSigner(t, edKey, err)
	referrers := []registry.Option{registry.WithReferrersSupport(true)}
	other := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}
	for _, tc := range []struct {
		reason  string
		options []registry.Option
		put     func(*shelf)
		by      []signer
		want    string
	}{
		{"unsigned", nil, func(*shelf) {}, []signer{ours}, "it has no signature, and " + field + " requires one"},
		{"signed", nil, func(s *shelf) { s.tag(s.digest, ours.good(s.digest)) }, []signer{ours}, ""},
		{"by an RSA key", nil, func(s *shelf) { s.tag(s.digest, byRSA.good(s.digest)) }, []signer{byRSA}, ""},
		{"by an Ed25519 key", nil, func(s *shelf) { s.tag(s.digest, byEd25519.good(s.digest)) }, []signer{byEd25519}, ""},
		{"by the second of two", nil, func(s *shelf) { s.tag(s.digest, others.good(s.digest), ours.good(s.digest)) }, []signer{ours}, ""},
		{"by both who must", nil, func(s *shelf) { s.tag(s.digest, others.good(s.digest), ours.good(s.digest)) }, []signer{ours, others}, ""},
		{
			"by one of two who must", nil, func(s *shelf) { s.tag(s.digest, ours.good(s.digest)) },
			[]signer{ours, others},
			"none of its signatures (1) was made with the key of weights.oci.requireVerify",
		},
		{
			"by another key", nil, func(s *shelf) { s.tag(s.digest, others.good(s.digest)) },
			[]signer{ours},
			"none of its signatures (1) was made with the key of " + field,
		},
		{
			"the signature of another digest below this one's tag", nil, func(s *shelf) { s.tag(s.digest, ours.good(other)) },
			[]signer{ours},
			`the key signed ["sha256:aaaa`,
		},
		{"another digest is signed", nil, func(s *shelf) { s.tag(other, ours.good(other)) }, []signer{ours}, "it has no signature"},
		{
			"the payload was replaced", nil, func(s *shelf) {
				signature := base64.StdEncoding.EncodeToString(ours.sign(payload("cosign container image signature", other)))
				s.tag(s.digest, ours.layerWith(payload("cosign container image signature", s.digest), signature))
			}, []signer{ours}, "was made with the key of",
		},
		{
			"a payload of another kind", nil, func(s *shelf) { s.tag(s.digest, ours.layer(payload("a receipt", s.digest))) },
			[]signer{ours},
			`its payload has the type "a receipt"`,
		},
		{
			"a signature that is no base64", nil, func(s *shelf) {
				s.tag(s.digest, ours.layerWith(payload("cosign container image signature", s.digest), "?"))
			}, []signer{ours}, "is not base64",
		},
		{
			"an oversized payload", nil, func(s *shelf) {
				s.tag(s.digest, ours.layer(append(payload("cosign container image signature", s.digest), bytes.Repeat([]byte(" "), 256<<10)...)))
			}, []signer{ours}, "more than 262144",
		},
		{
			"an oversized list of signatures", nil, func(s *shelf) {
				s.tag(s.digest, ours.layerWith([]byte("{}"), strings.Repeat("A", 1<<20)))
			}, []signer{ours}, "the registry answered with more than 1048576 bytes",
		},
		{
			"more signatures than are read", nil, func(s *shelf) {
				var layers []mutate.Addendum
				for range 32 {
					layers = append(layers, others.good(s.digest))
				}
				s.tag(s.digest, append(layers, ours.good(s.digest))...)
			}, []signer{ours}, "none of its signatures (32) was made with the key of",
		},
		{"a bundle", referrers, func(s *shelf) { s.refer(s.digest, ours.bundle(s.digest, signPredicate)) }, []signer{ours}, ""},
		{
			"a bundle by another key", referrers, func(s *shelf) { s.refer(s.digest, others.bundle(s.digest, signPredicate)) },
			[]signer{ours},
			"none of its signatures (1) was made with the key of",
		},
		{
			"a bundle about another digest", referrers, func(s *shelf) { s.refer(s.digest, ours.bundle(other, signPredicate)) },
			[]signer{ours},
			`the key signed ["sha256:aaaa`,
		},
		{
			"what the key attests of an artifact is no signature", referrers, func(s *shelf) {
				s.refer(s.digest, ours.bundle(s.digest, "https://cosign.sigstore.dev/attestation/vuln/v1"))
			}, []signer{ours}, `its statement has the predicate type "https://cosign.sigstore.dev/attestation/vuln/v1"`,
		},
		{"a bundle that is none", referrers, func(s *shelf) { s.refer(s.digest, []byte("{")) }, []signer{ours}, "a bundle is not JSON"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := newShelf(t, nil, tc.options...)
			tc.put(s)
			got, err := s.verify(tc.by...)
			if tc.want == "" {
				if want := s.repo.Digest(s.digest.String()).Name(); err != nil || got != want {
					t.Errorf("Verify() = %q, %v, want %q", got, err, want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Verify() = %q, %v, want an error with %q", got, err, tc.want)
			}
		})
	}
}

// A tag that moves after its verification has no effect, because the result names the digest.
func TestMovedTagKeepsVerifiedDigest(t *testing.T) {
	ours, s := newECDSA(t), newShelf(t, nil)
	s.tag(s.digest, ours.good(s.digest))
	before, err := s.verify(ours)
	if err != nil {
		t.Fatal(err)
	}
	s.push(s.repo.Tag("v1"), artifact(t, "others"))
	if _, err := s.verify(ours); err == nil {
		t.Error("the tag is verified although nobody signed what it names now")
	}
	s.reference = before
	if after, err := s.verify(ours); err != nil || after != before {
		t.Errorf("Verify(%s) = %s, %v, want the same", before, after, err)
	}
}

// A registry may truncate an answer, refuse a request, or send a text that must not appear in a message.
func TestBrokenRegistry(t *testing.T) {
	ours := newECDSA(t)
	answer := func(part string, status int, body string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if isRead := r.Method == http.MethodGet || r.Method == http.MethodHead; isRead && strings.Contains(r.URL.Path, part) {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	reset := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				next.ServeHTTP(w, r)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		})
	}
	for _, tc := range []struct {
		reason string
		wrap   func(http.Handler) http.Handler
		want   string
	}{
		{"a connection that is lost", reset, "connection reset by peer"},
		{"a payload that is cut short", answer("/blobs/", http.StatusOK, `{"crit`), "it was truncated or replaced"},
		{"no payload", answer("/blobs/", http.StatusNotFound, "secret"), "the registry answered with status 404"},
		{"no leave to read the artifact", answer("/manifests/v1", http.StatusForbidden, "secret"), "status 403: check the reference"},
		{"no such artifact", answer("/manifests/v1", http.StatusNotFound, "secret"), "status 404"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			isBroken := false
			s := newShelf(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if isBroken {
						tc.wrap(next).ServeHTTP(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			s.tag(s.digest, ours.good(s.digest))
			isBroken = true
			_, err := s.verify(ours)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("Verify() = %v, want an error with %q and nothing of the registry's", err, tc.want)
			}
		})
	}
}

func TestParseKeys(t *testing.T) {
	ours := newECDSA(t)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	weak, rsaErr := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // that it is refused is what is tested
	for _, tc := range []struct {
		reason, text, want string
		keys               int
	}{
		{"one", ours.pem(), "", 1},
		{"two, while one takes the place of the other", ours.pem() + newECDSA(t).pem(), "", 2},
		{"none", "cosign.pub", "it has no PEM block", 0},
		{"a private key", "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n", "ENCRYPTED SIGSTORE PRIVATE KEY", 0},
		{"another curve", newSigner(t, p384, err).pem(), "on the curve P-384: use P-256", 0},
		{"a weak key", newSigner(t, weak, rsaErr).pem(), "has 1024 bits: use 2048 to 8192", 0},
		{"too many", strings.Repeat(ours.pem(), 11), "it has 11 keys: give at most 10", 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			keys, err := cosign.ParseKeys(tc.text)
			if len(keys) != tc.keys || (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ParseKeys() = %d keys, %v, want %d and %q", len(keys), err, tc.keys, tc.want)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	const config = `{"credHelpers":{"a.example":"evil"},"credsStore":"evil","auths":{
		"a.example":{"auth":"bWU6b25l"}, "a.example/team":{"username":"me","password":"two"}, "https://index.docker.io/v1/":{"auth":"bWU6aHVi"}}}`
	credentials, err := cosign.ParseCredentials([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ reason, repository, want string }{
		{"the registry's", "a.example/model", "one"},
		{"the path's", "a.example/team/model", "two"},
		{"a neighbour's name begins alike", "a.example/teams/model", "one"},
		{"another registry's name begins alike", "a.example.evil/team/model", ""},
		{"Docker Hub has several names", "org/model", "hub"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			repository, err := name.NewRepository(tc.repository)
			if err != nil {
				t.Fatal(err)
			}
			found, err := credentials.Resolve(repository)
			if err != nil {
				t.Fatal(err)
			}
			got, err := authn.Authorization(t.Context(), found)
			if err != nil || got.Password != tc.want {
				t.Errorf("password %q, %v, want %q", got.Password, err, tc.want)
			}
		})
	}
	if _, err := cosign.ParseCredentials([]byte("?")); err == nil {
		t.Error("no error for what is no configuration")
	}
}

func TestIsBelow(t *testing.T) {
	for _, tc := range []struct {
		reference string
		places    []string
		want      bool
	}{
		{"a.example/team/model:v1", []string{"a.example"}, true},
		{"a.example/team/model:v1", []string{"b.example", "a.example/team"}, true},
		{"a.example/teams/model:v1", []string{"a.example/team"}, false},
		{"a.example.evil/model", []string{"a.example"}, false},
		{"org/model", []string{"docker.io/org"}, true},
		{"a.example/model", nil, false},
	} {
		if got := cosign.IsBelow(tc.reference, tc.places); got != tc.want {
			t.Errorf("IsBelow(%s, %v) = %v", tc.reference, tc.places, got)
		}
	}
}
