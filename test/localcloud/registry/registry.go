// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry serves the cloud's image registry and fills it from files. It decides the reference of an image in
// a file. It must not know the images.
package registry

import (
	"io"
	"log"
	"net/http"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Handler serves a registry with its layers below blobs and its manifests in memory.
func Handler(blobs string) http.Handler {
	return registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)),
		registry.Logger(log.New(io.Discard, "", 0)),
	)
}
