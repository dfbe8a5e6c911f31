// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

// Annotations with a layer's file name, from ORAS and from the CNCF's model format.
const (
	titleAnnotation = "org.opencontainers.image.title"
	pathAnnotation  = "org.cncf.model.filepath"
)

// maxLayers bounds the number of an artifact's files.
const maxLayers = 4096

// Options configure a Source.
type Options struct {
	// HTTP sends the requests.
	HTTP      *http.Client
	Keychain  authn.Keychain
	Clock     clock.WithDelayedExecution
	UserAgent string
}

// Source is one repository of a registry. It is safe for concurrent use.
type Source struct {
	options Options
	ref     name.Reference
	bounds  hub.Bounds

	mu sync.Mutex
	// client adds credentials. layers are from the last manifest.
	client *http.Client
	layers map[string]v1.Descriptor
}

// New returns the Source of REGISTRY/REPOSITORY, with a tag or a digest.
func New(image string, o Options) (*Source, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("%q is not the name of an artifact: %w", image, err)
	}
	return &Source{options: o, ref: ref, bounds: hub.Bounds{
		Clock: o.Clock, Answer: hub.DefaultAnswerTimeout, Idle: hub.DefaultIdleTimeout,
	}}, nil
}

// Registry returns the host of the registry.
func (s *Source) Registry() string { return s.ref.Context().RegistryStr() }

// Repository returns the name without tag or digest.
func (s *Source) Repository() string { return s.ref.Context().Name() }

// Revision returns the tag or the digest.
func (s *Source) Revision() string { return s.ref.Identifier() }

// IsDigest reports whether a revision is a digest. Unlike a tag, it always means the same content.
func IsDigest(revision string) bool {
	return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(revision)
}

// Resolve returns the digest of the manifest. For an index, it is the digest of this platform's entry, if there is one.
func (s *Source) Resolve(ctx context.Context, _, _ string) (string, error) {
	manifest, err := s.load(ctx, s.ref)
	if err != nil {
		return "", err
	}
	return manifest, nil
}

// Tree lists the layers with files.
func (s *Source) Tree(ctx context.Context, _, digest string) ([]hub.Entry, error) {
	if _, err := s.load(ctx, s.ref.Context().Digest(digest)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var entries []hub.Entry
	for path, layer := range s.layers {
		entries = append(entries, hub.Entry{Path: path, Size: layer.Size, Digest: digestOf(layer)})
	}
	return entries, nil
}

// Stat returns the manifest's data of one file.
func (s *Source) Stat(ctx context.Context, f hub.File) (hub.Metadata, error) {
	layer, err := s.layer(ctx, f)
	if err != nil {
		return hub.Metadata{}, err
	}
	return hub.Metadata{Commit: f.Revision, Size: layer.Size, SHA256: digestOf(layer)}, nil
}

// Open starts to read a range of a file, as hub.Client does.
func (s *Source) Open(ctx context.Context, f hub.File, r hub.Range) (io.ReadCloser, error) {
	layer, err := s.layer(ctx, f)
	if err != nil {
		return nil, err
	}
	return s.bounds.Open(ctx, f, r, func(ctx context.Context) (io.ReadCloser, string, error) { return s.get(ctx, f, layer, r) })
}

func (s *Source) get(ctx context.Context, f hub.File, layer v1.Descriptor, r hub.Range) (io.ReadCloser, string, error) {
	client, err := s.authorized(ctx, f)
	if err != nil {
		return nil, "", err
	}
	registry := s.ref.Context().Registry
	url := fmt.Sprintf("%s://%s/v2/%s/blobs/%s", registry.Scheme(), registry.RegistryStr(), s.ref.Context().RepositoryStr(), layer.Digest)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, "", fmt.Errorf("oci: building a request: %w", err)
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", r.Start, r.End-1))
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", s.explain(f, err)
	}
	if err := s.check(f, r, resp); err != nil {
		return nil, "", errors.Join(err, resp.Body.Close())
	}
	return resp.Body, resp.Request.URL.Scheme + "://" + resp.Request.URL.Host, nil
}

// check checks that the body begins at the requested byte.
func (s *Source) check(f hub.File, r hub.Range, resp *http.Response) error {
	if resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusOK && r.Start == 0 {
		return nil
	}
	if resp.StatusCode == http.StatusOK {
		return &hub.UnreachableError{
			Endpoint: s.Registry(), File: f, Status: resp.StatusCode,
			Err: errors.New("the registry ignores byte ranges: use a registry that supports them"),
		}
	}
	return s.explain(f, transport.CheckError(resp, http.StatusPartialContent))
}

// layer returns the layer of a file, from the manifest of its revision.
func (s *Source) layer(ctx context.Context, f hub.File) (v1.Descriptor, error) {
	s.mu.Lock()
	known := s.layers != nil
	s.mu.Unlock()
	if !known {
		if _, err := s.load(ctx, s.ref.Context().Digest(f.Revision)); err != nil {
			return v1.Descriptor{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	layer, ok := s.layers[f.Path]
	if !ok {
		return v1.Descriptor{}, &hub.NotFoundError{File: f, Missing: "file"}
	}
	return layer, nil
}

// load reads a manifest, stores its layers, and returns its digest.
func (s *Source) load(ctx context.Context, ref name.Reference) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, hub.DefaultAnswerTimeout)
	defer cancel()
	f := hub.File{Repo: s.Repository(), Revision: ref.Identifier()}
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithTransport(s.options.HTTP.Transport),
		remote.WithAuthFromKeychain(s.options.Keychain), remote.WithUserAgent(s.options.UserAgent),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1, Duration: time.Millisecond}))
	if err != nil {
		return "", s.explain(f, err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return "", s.explain(f, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", s.explain(f, err)
	}
	if len(manifest.Layers) > maxLayers {
		return "", fmt.Errorf("oci: %s has %d layers: at most %d are allowed", f, len(manifest.Layers), maxLayers)
	}
	layers := map[string]v1.Descriptor{}
	for i, layer := range manifest.Layers {
		if isArchive(layer) {
			layers[archiveName(i, layer)] = layer
			continue
		}
		if path := cmp.Or(layer.Annotations[titleAnnotation], layer.Annotations[pathAnnotation]); path != "" {
			layers[path] = layer
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers = layers
	return digest.String(), nil
}

// authorized returns the client with this repository's credentials. It requests them once.
func (s *Source) authorized(ctx context.Context, f hub.File) (*http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	repository := s.ref.Context()
	credentials, err := authn.Resolve(ctx, s.options.Keychain, repository)
	if err != nil {
		return nil, fmt.Errorf("oci: credentials for %s: %w", repository, err)
	}
	// The credentials must outlive the context of the first request.
	with, err := transport.NewWithContext(context.WithoutCancel(ctx), repository.Registry, credentials, s.options.HTTP.Transport,
		[]string{repository.Scope(transport.PullScope)})
	if err != nil {
		return nil, s.explain(f, err)
	}
	s.client = &http.Client{Transport: with}
	return s.client, nil
}

func digestOf(layer v1.Descriptor) hub.Digest {
	d, err := hub.ParseSHA256(layer.Digest.Hex)
	if err != nil || layer.Digest.Algorithm != "sha256" {
		return hub.Digest{}
	}
	return d
}
