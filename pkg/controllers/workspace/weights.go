// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/planner"
)

// pinWeights replaces a branch or tag of the plan's weights by the commit that it names now, so that each pod
// of the revision serves the same, and says before anything is bought that they may not be read. It needs the
// administrator's leave to ask the hub; without it the agents tell, and each fetches what the branch is at.
// A hub that does not answer holds nothing up: the agents ask it again.
func (r *Reconciler) pinWeights(ctx context.Context, s *scope, plan *planner.Plan) error {
	if s.spec.Inference.Weights != nil {
		return r.pinArtifact(ctx, s, plan)
	}
	if r.Hub == nil {
		return nil
	}
	if plan.Artifact == nil || plan.Artifact.Repo == "" || hub.IsCommit(plan.Artifact.Revision) {
		return nil
	}
	artifact, commit := *plan.Artifact, s.pinnedCommit(plan.Artifact.Repo) // other machines are no other weights
	if commit == "" {
		var err error
		if commit, err = r.commitOf(ctx, s, plan); err != nil || commit == "" {
			return err
		}
	}
	artifact.Revision = commit
	plan.Artifact = &artifact
	return nil
}

// commitOf asks the hub which commit a plan's weights are at. It is empty, with a warning in the plan where the
// hub does not answer, as long as that is not known.
func (r *Reconciler) commitOf(ctx context.Context, s *scope, plan *planner.Plan) (string, error) {
	token, err := r.hubToken(ctx, s.spec)
	if err != nil {
		return "", err
	}
	artifact := plan.Artifact
	asked := hub.File{Repo: artifact.Repo, Revision: artifact.Revision, Path: "config.json"}
	if asked.Revision == "" {
		asked.Revision = "main"
	}
	if len(artifact.Files) > 0 {
		asked.Path = artifact.Files[0].Path
	}
	commit, err := r.Hub.Commit(ctx, asked, token)
	_, isRefused := errors.AsType[*hub.UnauthorizedError](err)
	missing, isMissing := errors.AsType[*hub.NotFoundError](err)
	// A repository need not have a config.json; the files that an artifact lists it must have.
	isMissing = isMissing && (missing.Missing == "repository" || missing.Missing == "revision" || len(artifact.Files) > 0)
	switch {
	case isRefused || isMissing:
		return "", &stalledError{reason: v1beta1.ReasonModelNotDescribed, message: err.Error(), retryAfter: retryHub}
	case err != nil:
		log.FromContext(ctx).Info("the hub does not tell the commit of the weights", "repo", asked.Repo, "reason", err.Error())
		plan.Warnings = append(plan.Warnings, fmt.Sprintf(
			"cannot resolve %s of %s to a commit: a later pod may fetch other weights", asked.Revision, asked.Repo))
		return "", nil
	}
	return commit, nil
}

// pinnedCommit is that of a repository in the plan that this one takes the place of; empty where it has none.
func (s *scope) pinnedCommit(repo string) string {
	if s.revision == nil || s.revision.Plan.Artifact == nil || s.revision.Plan.Artifact.Repo != repo ||
		!hub.IsCommit(s.revision.Plan.Artifact.Revision) {
		return ""
	}
	return s.revision.Plan.Artifact.Revision
}
