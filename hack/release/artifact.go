// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// artifactImage is an image with a foreign config. go-containerregistry has no other way to write such an image.
type artifactImage struct {
	v1.Image

	config []byte
}

func (a *artifactImage) RawConfigFile() ([]byte, error) { return a.config, nil }

func (a *artifactImage) ConfigName() (v1.Hash, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(a.config))
	return hash, err
}

func (a *artifactImage) Manifest() (*v1.Manifest, error) {
	manifest, err := a.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	manifest.Config.MediaType, manifest.Config.Size = chartConfig, int64(len(a.config))
	manifest.Config.Digest, err = a.ConfigName()
	return manifest, err
}

func (a *artifactImage) RawManifest() ([]byte, error) {
	manifest, err := a.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(manifest)
}

func (a *artifactImage) Digest() (v1.Hash, error) { return partial.Digest(a) }

func (a *artifactImage) Size() (int64, error) { return partial.Size(a) }
