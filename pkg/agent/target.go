// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/modelberth/modelberth/pkg/hub"
)

// want is a requested file.
type want struct {
	file  hub.File
	given hub.Digest
}

// target is a file as the hub describes it, pinned to a commit.
type target struct {
	want
	commit string
	size   int64
	digest hub.Digest
}

// pinned returns the file at its commit, an immutable name of the content.
func (t target) pinned() hub.File {
	f := t.file
	f.Revision = t.commit
	return f
}

func (t target) isVague() bool { return t.digest.IsZero() || t.size < 0 }
