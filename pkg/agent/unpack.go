// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/modelberth/modelberth/pkg/agent/oci"
)

// unpacking fetches an image, and then unpacks those of its layers that are archives.
type unpacking struct {
	work
	root   *os.Root
	dir    string
	isDone atomic.Bool
}

// Run is safe to repeat at any point.
func (u *unpacking) Run(ctx context.Context) error {
	if err := u.work.Run(ctx); err != nil {
		return err
	}
	if err := oci.Unpack(u.root, u.dir); err != nil {
		return storageError(".", err)
	}
	u.isDone.Store(true)
	return nil
}

// Progress counts what is fetched; files that are being unpacked are not in place.
func (u *unpacking) Progress() Progress {
	p := u.work.Progress()
	if p.Ready && !u.isDone.Load() {
		p.Ready, p.Stage = false, StageVerifying
	}
	return p
}
