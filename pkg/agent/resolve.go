// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
)

// settled is the termination message of an agent that has resolved a commit.
type settled struct {
	Commit string `json:"commit"`
}

// resolve resolves the commit of the only target and writes it to the termination message. The controller can keep it
// for the next pod.
func resolve(ctx context.Context, s Settings, log *slog.Logger) error {
	made, err := newTask(s, s.Targets[0], nil, log)
	if err != nil {
		return terminate(err, s.TerminationLog)
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
		return terminate(&sourceError{made.source, err}, s.TerminationLog)
	}
	log.Info("resolved the commit", "repo", made.source.repo, "revision", made.source.revision, "commit", commit)
	data, err := marshalPlain(settled{Commit: commit})
	if err != nil {
		return err
	}
	return writeLast(s.TerminationLog, data)
}
