// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// pin is the commit of a branch or tag at the first request. It is on the volume for the following fetch.
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

// Pin resolves the revision to a commit: the one resolved before in this pod, else the one kept by others, else the
// hub's present one.
func (f *Fetcher) Pin(ctx context.Context, kept string) (string, error) {
	if commit, known := f.readPin(); known {
		return commit, nil
	}
	commit := kept
	if !isPinned(kept) {
		err := f.patiently(ctx, func(ctx context.Context) (err error) {
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

// settled is the termination message of an agent that has resolved a commit.
type settled struct {
	Commit string `json:"commit"`
}

// resolve resolves the commit of the only target and writes it to the termination message. The maker of the
// following pod can keep it.
func resolve(ctx context.Context, s Settings, log *slog.Logger) error {
	made, err := newTask(s, s.Targets[0], nil, log)
	if err != nil {
		return giveUp(err, s.TerminationLog)
	}
	defer taskList{made}.close()
	pinner, can := made.work.(interface {
		Pin(ctx context.Context, kept string) (string, error)
	})
	if !can {
		return fmt.Errorf("the revision of %q cannot be resolved", s.Targets[0].Name)
	}
	commit, err := pinner.Pin(ctx, s.KeptCommit)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return giveUp(&sourceError{made.source, err}, s.TerminationLog)
	}
	log.Info("resolved the commit", "repo", made.source.repo, "revision", made.source.revision, "commit", commit)
	data, err := marshalPlain(settled{Commit: commit})
	if err != nil {
		return err
	}
	return writeLast(s.TerminationLog, data)
}
