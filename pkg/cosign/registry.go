// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/modelberth/modelberth/pkg/redact"
)

const (
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	predicateAnnotation = "dev.sigstore.bundle.predicateType"
	simpleSigningMedia  = "application/vnd.dev.cosign.simplesigning.v1+json"
	bundleMedia         = "application/vnd.dev.sigstore.bundle"
	// emptyMedia may be the media type of a bundle that cosign 2.5 or later made:
	// https://github.com/sigstore/cosign/issues/4422
	emptyMedia = "application/vnd.oci.empty.v1+json"
)

// Anybody with push access to a repository controls the objects next to an artifact. So these limits apply to each
// answer of the registry, to the size of each signature, and to the number of signatures of each kind.
const (
	maxAnswer     = 1 << 20
	maxSignature  = 256 << 10
	maxSignatures = 32
)

// Requirement is met by a signature of one of its keys or of its identity.
type Requirement struct {
	// Field is the manifest's field with the keys or the identity, for messages.
	Field    string
	Keys     []Key
	Identity *Identity
}

// Artifact is the artifact to verify.
type Artifact struct {
	// Reference by tag or digest.
	Reference string
	Keychain  authn.Keychain
	// HTTP carries the requests.
	HTTP http.RoundTripper
	// Verifier verifies signatures of identities.
	Verifier Verifier
}

// Verify returns the reference by digest if each requirement is met. The signature must cover the object that the
// reference names: a manifest or an index.
func Verify(ctx context.Context, artifact Artifact, requirements ...Requirement) (string, error) {
	ref, err := name.ParseReference(artifact.Reference)
	if err != nil {
		return "", fmt.Errorf("%q is not a reference to an artifact", artifact.Reference)
	}
	// With one puller, the credentials are requested once.
	puller, err := remote.NewPuller(remote.WithAuthFromKeychain(artifact.Keychain), remote.WithTransport(bounded{artifact.HTTP}),
		remote.WithUserAgent("modelberth-controller"), remote.WithRetryBackoff(remote.Backoff{Steps: 1, Duration: time.Millisecond}))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", ref, err)
	}
	in := &repository{ref.Context(), []remote.Option{remote.WithContext(ctx), remote.Reuse(puller)}}
	digest, err := in.resolve(ref)
	if err != nil {
		return "", err
	}
	found, broken := in.signatures(digest)
	for _, requirement := range requirements {
		verify := requirement.verify
		if requirement.Identity != nil {
			verify = requirement.verifyIdentity(ctx, artifact.Verifier)
		}
		if err := verify(digest.DigestStr(), found, broken); err != nil {
			return "", fmt.Errorf("%s: %w", digest, err)
		}
	}
	return digest.Name(), nil
}

// repository is a repository of a registry, with the options for reading it.
type repository struct {
	name.Repository
	options []remote.Option
}

// resolve returns the digest of a reference.
func (r *repository) resolve(ref name.Reference) (name.Digest, error) {
	if digest, ok := ref.(name.Digest); ok {
		return digest, nil
	}
	head, err := remote.Head(ref, r.options...)
	if err != nil {
		return name.Digest{}, fmt.Errorf("reading the digest of %s: %w", ref, explain(err))
	}
	return r.Digest(head.Digest.String()), nil
}

// signatures returns the signatures at the tag of the digest and among the digest's referrers. broken has the errors of
// unreadable ones.
func (r *repository) signatures(digest name.Digest) (found []signature, broken []error) {
	keep := func(one signature, err error) {
		if err != nil {
			broken = append(broken, err)
			return
		}
		found = append(found, one)
	}
	tagged, err := r.manifest(r.Tag(strings.Replace(digest.DigestStr(), ":", "-", 1) + ".sig"))
	if err != nil {
		broken = append(broken, err)
	}
	for _, layer := range first(tagged.Layers, maxSignatures) {
		if layer.MediaType == simpleSigningMedia {
			keep(r.simpleSignature(layer))
		}
	}
	referrers, err := r.referrers(digest)
	if err != nil {
		broken = append(broken, err)
	}
	for _, referrer := range first(bundles(referrers), maxSignatures) {
		manifest, err := r.manifest(r.Digest(referrer.Digest.String()))
		if err != nil {
			broken = append(broken, err)
		}
		for _, layer := range first(manifest.Layers, 1) {
			if strings.HasPrefix(string(layer.MediaType), bundleMedia) {
				keep(r.bundle(layer))
			}
		}
	}
	return found, broken
}

func (r *repository) referrers(digest name.Digest) ([]v1.Descriptor, error) {
	index, err := remote.Referrers(digest, r.options...)
	if err != nil {
		return nil, explain(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, errors.New("the list of its referrers is not an index")
	}
	return manifest.Manifests, nil
}

// bundles returns the referrers that may be signatures.
func bundles(referrers []v1.Descriptor) []v1.Descriptor {
	var out []v1.Descriptor
	for _, referrer := range referrers {
		isBundle := strings.HasPrefix(referrer.ArtifactType, bundleMedia) || referrer.ArtifactType == emptyMedia
		predicate := referrer.Annotations[predicateAnnotation]
		if isBundle && (predicate == "" || predicate == signPredicate) {
			out = append(out, referrer)
		}
	}
	return out
}

func first(descriptors []v1.Descriptor, most int) []v1.Descriptor {
	return descriptors[:min(len(descriptors), most)]
}

// manifest returns an empty manifest if there is none, or with an error.
func (r *repository) manifest(ref name.Reference) (*v1.Manifest, error) {
	image, err := remote.Image(ref, r.options...)
	if answer, ok := errors.AsType[*transport.Error](err); ok && answer.StatusCode == http.StatusNotFound {
		return &v1.Manifest{}, nil
	}
	if err != nil {
		return &v1.Manifest{}, explain(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return &v1.Manifest{}, fmt.Errorf("%s is not a manifest", ref)
	}
	return manifest, nil
}

func (r *repository) simpleSignature(layer v1.Descriptor) (signature, error) {
	value, err := base64.StdEncoding.DecodeString(layer.Annotations[signatureAnnotation])
	if err != nil || len(value) == 0 {
		return signature{}, fmt.Errorf("the annotation %s of a signature is not base64", signatureAnnotation)
	}
	message, err := r.blob(layer)
	return signature{message: message, value: value, subjects: func() ([]string, error) { return simpleSigning(message) }}, err
}

func (r *repository) bundle(layer v1.Descriptor) (signature, error) {
	content, err := r.blob(layer)
	if err != nil {
		return signature{}, err
	}
	return parseBundle(content)
}

// blob returns the content of a descriptor, and verifies its size and digest.
func (r *repository) blob(layer v1.Descriptor) ([]byte, error) {
	if layer.Size > maxSignature {
		return nil, fmt.Errorf("a signature has %d bytes, more than %d", layer.Size, maxSignature)
	}
	remoteLayer, err := remote.Layer(r.Digest(layer.Digest.String()), r.options...)
	if err != nil {
		return nil, explain(err)
	}
	content, err := remoteLayer.Compressed()
	if err != nil {
		return nil, explain(err)
	}
	defer func() { _ = content.Close() }()
	out, err := io.ReadAll(content)
	if _, isLost := errors.AsType[net.Error](err); isLost {
		return nil, fmt.Errorf("reading signature %s: %w", layer.Digest, explain(err))
	}
	if err != nil || int64(len(out)) != layer.Size {
		return nil, fmt.Errorf("signature %s does not match its manifest: it was truncated or replaced", layer.Digest)
	}
	return out, nil
}

// explain describes a registry's answer without its text, because that is untrusted.
func explain(err error) error {
	answer, isAnswer := errors.AsType[*transport.Error](err)
	_, isLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isLarge:
		return fmt.Errorf("the registry answered with more than %d bytes", maxAnswer)
	case !isAnswer:
		return redact.Error(err)
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the registry answered with status %d: check the reference, and that the credentials may read it", answer.StatusCode)
	default:
		return fmt.Errorf("the registry answered with status %d", answer.StatusCode)
	}
}

// bounded limits the size of each answer.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)
	return response, nil
}
