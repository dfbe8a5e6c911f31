// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/hub/describe"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
)

const someCommit = "0123456789abcdef0123456789abcdef01234567"

// fakeHub is a hub that always gives the same answer, and records its queries.
type fakeHub struct {
	commit string
	err    error
	asked  []hub.File
}

func (o *fakeHub) Describe(context.Context, string, string, string) (describe.Description, error) {
	return describe.Description{}, errors.New("not asked here")
}

func (o *fakeHub) Commit(_ context.Context, f hub.File, _ string) (string, error) {
	o.asked = append(o.asked, f)
	return o.commit, o.err
}

func workspace() *v1beta1.Workspace {
	ws := &v1beta1.Workspace{}
	ws.Namespace, ws.Name, ws.UID = "team-a", "chat", "uid-1"
	ws.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "some-model"}}
	return ws
}

func TestPinWeights(t *testing.T) {
	whole := model.Artifact{Repo: "org/model", Revision: "main"}
	files := model.Artifact{Repo: "org/gguf", Files: []model.File{{Path: "q8/model.gguf"}}}
	pinned := model.Artifact{Repo: "org/model", Revision: someCommit}
	const unknown = "cannot resolve main of org/model to a commit: a later pod may fetch other weights"
	for _, tc := range []struct {
		reason   string
		artifact model.Artifact
		hub      fakeHub
		want     string
		asked    []hub.File
		warnings []string
		stalled  string
	}{
		{
			reason: "the branch is replaced by the commit that it is at", artifact: whole, hub: fakeHub{commit: someCommit},
			want: someCommit, asked: []hub.File{{Repo: "org/model", Revision: "main", Path: "config.json"}},
		},
		{
			reason: "listed files are what is asked for, on the branch that a hub has by default", artifact: files,
			hub: fakeHub{commit: someCommit}, want: someCommit, asked: []hub.File{{Repo: "org/gguf", Revision: "main", Path: "q8/model.gguf"}},
		},
		{reason: "a commit is not asked for", artifact: pinned, want: someCommit},
		{
			reason: "a mirror that does not say changes nothing", artifact: whole, want: "main",
			asked: []hub.File{{Repo: "org/model", Revision: "main", Path: "config.json"}},
		},
		{
			reason: "a repository without a config.json is fetched all the same", artifact: whole,
			hub: fakeHub{err: &hub.NotFoundError{Missing: "file"}}, want: "main", warnings: []string{unknown},
			asked: []hub.File{{Repo: "org/model", Revision: "main", Path: "config.json"}},
		},
		{
			reason: "a hub that does not answer holds nothing up", artifact: whole, hub: fakeHub{err: &hub.UnreachableError{}},
			want: "main", warnings: []string{unknown}, asked: []hub.File{{Repo: "org/model", Revision: "main", Path: "config.json"}},
		},
		{
			reason: "a token that does not do is said before a machine is bought", artifact: whole,
			hub: fakeHub{err: &hub.UnauthorizedError{}}, want: "main", stalled: v1beta1.ReasonModelNotDescribed,
			asked: []hub.File{{Repo: "org/model", Revision: "main", Path: "config.json"}},
		},
		{
			reason: "so is a listed file that is not there", artifact: files, hub: fakeHub{err: &hub.NotFoundError{Missing: "file"}},
			stalled: v1beta1.ReasonModelNotDescribed, asked: []hub.File{{Repo: "org/gguf", Revision: "main", Path: "q8/model.gguf"}},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan := planner.Plan{Artifact: &tc.artifact}
			err := NewWeights(nil, &tc.hub, Signatures{}, "").Pin(t.Context(), &Demand{Workspace: workspace()}, &plan)
			reason := ""
			if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
				reason, err = stalled.Reason, nil
			}
			if err != nil || reason != tc.stalled {
				t.Errorf("stalled for %q, error %v; want %q", reason, err, tc.stalled)
			}
			if plan.Artifact.Revision != tc.want {
				t.Errorf("revision %q, want %q", plan.Artifact.Revision, tc.want)
			}
			if diff := cmp.Diff(tc.warnings, plan.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.asked, tc.hub.asked); diff != "" {
				t.Errorf("what the hub was asked (-want +got):\n%s", diff)
			}
		})
	}
	plan := planner.Plan{Artifact: &whole}
	if err := NewWeights(nil, nil, Signatures{}, "").Pin(t.Context(), &Demand{Workspace: workspace()}, &plan); err != nil || plan.Artifact.Revision != "main" {
		t.Errorf("without leave to ask the hub: %v, %s", err, plan.Artifact.Revision)
	}
}

// TestPinnedWeightsStay replaces a plan, for example after a lost machine. The branch may be at another commit by then.
func TestPinnedWeightsStay(t *testing.T) {
	const later = "fedcba9876543210fedcba9876543210fedcba98"
	for _, tc := range []struct {
		reason, repo, want string
		asked              int
	}{
		{"the same repository stays at its commit", "org/model", someCommit, 0},
		{"another one is asked for", "org/gguf", later, 1},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			asked := &fakeHub{commit: later}
			replaces := &planner.Plan{Artifact: &model.Artifact{Repo: "org/model", Revision: someCommit}}
			plan := planner.Plan{Artifact: &model.Artifact{Repo: tc.repo, Revision: "main"}}
			if err := NewWeights(nil, asked, Signatures{}, "").Pin(t.Context(), &Demand{Workspace: workspace(), replaces: replaces}, &plan); err != nil {
				t.Fatal(err)
			}
			if plan.Artifact.Revision != tc.want || len(asked.asked) != tc.asked {
				t.Errorf("revision %q, asked %d times; want %q and %d", plan.Artifact.Revision, len(asked.asked), tc.want, tc.asked)
			}
		})
	}
}
