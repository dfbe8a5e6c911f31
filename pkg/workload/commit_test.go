// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/workload"
)

// The agent resolves a commit only if the weights may change later, because that delays each start.
func TestSettlesCommit(t *testing.T) {
	commit := strings.Repeat("0a", 20)
	sum := strings.Repeat("0a", 32)
	for _, tc := range []struct {
		reason   string
		artifact model.Artifact
		from     *v1beta1.WeightsSource
		want     bool
	}{
		{"a branch", model.Artifact{Repo: "r", Revision: "main"}, nil, true},
		{"the default branch", model.Artifact{Repo: "r"}, nil, true},
		{"a commit", model.Artifact{Repo: "r", Revision: commit}, nil, false},
		{"files with checksums", model.Artifact{Repo: "r", Revision: "main", Files: []model.File{{Path: "a", SHA256: sum}}}, nil, false},
		{"one file without", model.Artifact{Repo: "r", Revision: "main", Files: []model.File{{Path: "a", SHA256: sum}, {Path: "b"}}}, nil, true},
		{"an artifact by its tag", model.Artifact{Repo: "r", Revision: commit}, &v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{Reference: "a:1"}}, true},
		{"an artifact by its digest", model.Artifact{Repo: "r"}, &v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{Reference: "a@sha256:" + sum}}, false},
		{"files that are there", model.Artifact{Repo: "r"}, &v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "c"}}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(preset(), 1)
			in.Plan.Artifact, in.Workspace.Inference.Weights = &tc.artifact, tc.from
			if got := podTemplate(in).Spec.InitContainers[0].Name == "commit"; got != tc.want {
				t.Errorf("settled: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestSettledCommit(t *testing.T) {
	commit := strings.Repeat("0a", 20)
	told := func(message string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "commit", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message},
		}}
	}
	const name = "chat-0123456789-commit"
	for _, tc := range []struct {
		reason    string
		status    corev1.ContainerStatus
		configMap string
		commit    string
	}{
		{"told", told(`{"commit":"`+commit+`"}`, 0), name, commit},
		{"a digest", told(`{"commit":"sha256:`+strings.Repeat("0a", 32)+`"}`, 0), name, "sha256:" + strings.Repeat("0a", 32)},
		{"not yet", corev1.ContainerStatus{Name: "commit"}, "", ""},
		{"it gave up", told(`{"commit":"`+commit+`"}`, 1), "", ""},
		{"its log instead", told("level=info", 0), "", ""},
		{"no commit", told(`{"commit":"main"}`, 0), "", ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := wholeRepository(input(preset(), 1))
			template := podTemplate(in)
			pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{tc.status}
			if _, err := workload.Keep(pod); err != nil { // as in the controller's cache
				t.Fatal(err)
			}
			if configMap, commit := workload.SettledCommit(pod); configMap != tc.configMap || commit != tc.commit {
				t.Errorf("%q, %q; want %q, %q", configMap, commit, tc.configMap, tc.commit)
			}
		})
	}
}
