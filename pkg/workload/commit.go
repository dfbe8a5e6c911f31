// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// If the weights are named by a branch or tag, an init container resolves it to a commit and reports the commit in its
// termination message. The controller keeps the commit in a ConfigMap of the revision, where the init containers of
// later pods read it. The pod template does not change, so no pod restarts.

// CommitContainer returns the name of the init container that resolves the commit in the pods of a Workspace.
func CommitContainer(workspace string) string { return agentContainer(workspace, "commit") }

// keptCommit is the variable with the kept commit. commitKey is its key in the ConfigMap.
const (
	keptCommit = "KEPT_COMMIT"
	commitKey  = "commit"
)

// commitContainer returns the container that resolves the branch or tag of the weights; nil if the weights cannot
// change.
func commitContainer(in Input) []corev1.Container {
	if !isOpen(in) {
		return nil
	}
	args := slices.Concat(hubArgs(in), authorityArgs(in), []string{"resolve", "--dest", ModelDir}, originArgs(in))
	env := slices.Concat(proxyEnv(in), hubToken(in), registryEnv(in))
	if in.Commits != "" {
		env = append(env, corev1.EnvVar{Name: keptCommit, ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: in.Commits}, Key: commitKey, Optional: new(true),
			},
		}})
	}
	return []corev1.Container{{
		Name:                     CommitContainer(in.Workspace.Name),
		Image:                    in.Settings.AgentImage,
		ImagePullPolicy:          corev1.PullPolicy(in.Settings.ImagePullPolicy),
		Args:                     literals(args),
		Env:                      env,
		Resources:                agentResources(),
		SecurityContext:          containerSecurity(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             slices.Concat([]corev1.VolumeMount{modelsMount(in)}, authorityMounts(in), pullMounts(in)),
	}}
}

// isOpen reports whether the same reference may name other weights later. It cannot if all files have checksums.
func isOpen(in Input) bool {
	artifact := ptr.Deref(in.Plan.Artifact, model.Artifact{})
	areKnown := len(artifact.Files) > 0 && !slices.ContainsFunc(artifact.Files, func(f model.File) bool { return f.SHA256 == "" })
	if in.Engine.NoWeights || isMounted(in) || areKnown {
		return false
	}
	if from := source(in.Workspace); from.OCI != nil {
		return in.Plan.Weights == nil && !strings.Contains(from.OCI.Reference, "@")
	}
	return !artifact.IsPinned()
}

// SettledCommit returns the commit that a pod reports, and the name of the ConfigMap for it. Both are empty if the pod
// reports none.
func SettledCommit(pod *corev1.Pod) (configMap, commit string) {
	name := CommitContainer(pod.Labels[v1beta1.LabelWorkspace])
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		at := slices.IndexFunc(container.Env, func(v corev1.EnvVar) bool {
			return v.Name == keptCommit && v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil
		})
		if container.Name == name && at >= 0 {
			configMap = container.Env[at].ValueFrom.ConfigMapKeyRef.Name
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if ended := status.State.Terminated; status.Name == name && ended != nil && ended.ExitCode == 0 {
			var said struct{ Commit string }
			if json.Unmarshal([]byte(ended.Message), &said) == nil {
				commit = said.Commit
			}
		}
	}
	if configMap == "" || commit == "" || !regexp.MustCompile(`^(sha256:)?[0-9a-f]{40,64}$`).MatchString(commit) {
		return "", ""
	}
	return configMap, commit
}

// CommitsOf returns the name of the ConfigMap with the commit of all revisions with the same inputs.
func CommitsOf(ws *v1beta1.Workspace, hash string) string { return ws.Name + "-" + hash + "-commit" }

// Commits returns the ConfigMap with a commit. It exists as long as its revision.
func Commits(ws *v1beta1.Workspace, name, commit string, revision metav1.OwnerReference) *corev1.ConfigMap {
	meta := objectMeta(ws, name)
	meta.OwnerReferences = []metav1.OwnerReference{revision}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ConfigMap"},
		ObjectMeta: meta, Immutable: new(true), Data: map[string]string{commitKey: commit},
	}
}
