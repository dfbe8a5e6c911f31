// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelberth/modelberth/pkg/agent/oci"
	"github.com/modelberth/modelberth/pkg/hub"
)

// pin is the commit of a branch or tag at the first request. The volume keeps it for the fetch that follows.
type pin struct {
	Version  int    `json:"version"`
	Repo     string `json:"repo"`
	Revision string `json:"revision"`
	Commit   string `json:"commit"`
}

const (
	pinVersion = 1
	pinName    = ".modelberth-commit"
)

func (f *Fetcher) readPin() (string, bool) {
	var p pin
	data, err := f.volume.readRecord(pinName)
	if err != nil || decodeStrict(data, &p) != nil {
		return "", false
	}
	same := pin{Version: pinVersion, Repo: f.config.Repo, Revision: f.config.Revision, Commit: p.Commit}
	return p.Commit, p == same && isPinned(p.Commit)
}

// Pin resolves the revision to a commit. It is the commit that this pod has resolved before, else the kept one, else
// the hub's present commit.
func (f *Fetcher) Pin(ctx context.Context, kept string) (string, error) {
	if commit, known := f.readPin(); known {
		return commit, nil
	}
	commit := kept
	if !isPinned(kept) {
		err := f.stall.guard(ctx, func(ctx context.Context) (err error) {
			commit, err = f.commit(ctx)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(pin{Version: pinVersion, Repo: f.config.Repo, Revision: f.config.Revision, Commit: commit})
	if err != nil {
		return "", fmt.Errorf("encoding the commit: %w", err)
	}
	return commit, f.volume.writeRecord(pinName, data)
}

func (f *Fetcher) commit(ctx context.Context) (string, error) {
	if isPinned(f.config.Revision) {
		return f.config.Revision, nil
	}
	if commit, known := f.readPin(); known {
		return commit, nil
	}
	return persist(ctx, f.stall, func() (string, error) {
		return f.config.Hub.Resolve(ctx, f.config.Repo, f.config.Revision)
	})
}

// isPinned reports whether a revision always means the same content.
func isPinned(revision string) bool { return hub.IsCommit(revision) || oci.IsDigest(revision) }
