// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Target is the destination of a bundle.
type Target struct {
	// Registry is HOST or HOST/PATH.
	Registry string
	// Insecure allows plain HTTP.
	Insecure bool
	Keychain authn.Keychain
}

// Push sends the entries to the registry in the bundle's order, and calls pushed after each. It skips what the registry
// already has, so a second run continues an interrupted one.
func (b *Bundle) Push(ctx context.Context, to Target, pushed func(reference string, entry Entry)) error {
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(to.Keychain), remote.WithUserAgent("kubectl-berth"),
	}
	var parse []name.Option
	if to.Insecure {
		parse = append(parse, name.Insecure)
	}
	for i := range b.Entries {
		entry := &b.Entries[i]
		ref, err := name.NewTag(to.Registry+"/"+entry.Repository+":"+entry.Tag, parse...)
		if err != nil {
			return fmt.Errorf("registry %q: %w", to.Registry, err)
		}
		if err := b.push(ref, entry, options); err != nil {
			return fmt.Errorf("pushing %s: %w", ref, err)
		}
		pushed(ref.Context().Name()+"@"+entry.Digest.String(), *entry)
	}
	return nil
}

func (b *Bundle) push(ref name.Reference, entry *Entry, options []remote.Option) error {
	if entry.isIndex {
		index, err := b.index.ImageIndex(entry.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, index, options...)
	}
	img, err := b.index.Image(entry.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, img, options...)
}
