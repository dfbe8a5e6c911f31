// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/modelberth/modelberth/api/v1beta1"
	live "github.com/modelberth/modelberth/pkg/adapters"
)

// An engine with routes to load adapters must not serve them to clients: these could make it read any path. So it
// listens on the loopback interface, and the agent answers at the endpoint's port. The list of adapters is an annotation
// of the pod, which the agent reads as a file. The template has none, so a new pod is not ready before the controller has
// written the present list.

// adaptersFile is the annotation as a file in podDir.
const adaptersFile = "adapters"

// adaptersGiB is the disk space for all adapters together. It is within the plan's reserve for images, which do not count
// toward the limit of the pod.
const adaptersGiB = 12

// isLive reports whether the adapters change while the engine runs.
func (in Input) isLive() bool { return in.Engine.LoopbackPort > 0 }

// LiveObstacle explains why the agent cannot load some adapters while the engine runs; empty if it can load all.
func LiveObstacle(list []v1beta1.AdapterSpec) string {
	for _, spec := range list {
		switch {
		case spec.Source == nil:
			return "an adapter has no source"
		case !isFetched(spec):
			return fmt.Sprintf("the pod mounts the volume of adapter %s when it starts", spec.Source.Name)
		case strengthOf(spec) != 1:
			return fmt.Sprintf("adapter %s has a strength", spec.Source.Name)
		}
	}
	return ""
}

// LiveAdapters returns the adapters for the agent.
func LiveAdapters(list []v1beta1.AdapterSpec) []live.Adapter {
	out := make([]live.Adapter, 0, len(list))
	for _, spec := range list {
		out = append(out, live.Adapter{
			Name: spec.Source.Name, Repository: spec.Source.Repository, Image: spec.Source.Image, Path: spec.Path,
		})
	}
	return out
}

// PullSecretOf returns the Secret for the images of adapters; empty if they name none.
func PullSecretOf(list []v1beta1.AdapterSpec) string {
	for _, spec := range list {
		if spec.Source.Image != "" && len(spec.Source.ImagePullSecrets) > 0 {
			return spec.Source.ImagePullSecrets[0]
		}
	}
	return ""
}

// TakesAdapters reports whether a Workspace continues to answer if its inference is changed, because only its adapters
// change and its running pod surely can take them.
func TakesAdapters(ws *v1beta1.Workspace, desired *v1beta1.InferenceSpec) bool {
	if ws.Inference == nil || desired == nil || ws.Status.Endpoint == nil || ws.Status.ObservedGeneration != ws.Generation {
		return false
	}
	after, secret, slots := desired.Adapters, PullSecretOf(desired.Adapters), int(ws.Status.Endpoint.AdapterSlots)
	return slots > 0 && len(after) <= slots && LiveObstacle(after) == "" &&
		equality.Semantic.DeepEqual(WithoutAdapters(ws.Inference), WithoutAdapters(desired)) &&
		(secret == "" || secret == PullSecretOf(ws.Inference.Adapters)) &&
		!slices.ContainsFunc(after, func(a v1beta1.AdapterSpec) bool { return isReused(ws, a) })
}

// WithoutAdapters returns a copy of a spec without its adapters.
func WithoutAdapters(in *v1beta1.InferenceSpec) *v1beta1.InferenceSpec {
	out := *in
	out.Adapters = nil
	return &out
}

// isReused reports whether the pod of a Workspace may have served the name of an adapter with other files.
func isReused(ws *v1beta1.Workspace, a v1beta1.AdapterSpec) bool {
	for _, known := range ws.Inference.Adapters {
		if known.Source != nil && known.Source.Name == a.Source.Name {
			return !equality.Semantic.DeepEqual(known, a)
		}
	}
	return len(ws.Status.Adapters) >= mostKnown ||
		slices.ContainsFunc(ws.Status.Adapters, func(s v1beta1.AdapterStatus) bool { return s.Name == a.Source.Name })
}

// mostKnown is the number of states from which the status may lack some.
const mostKnown = 20

// awaitAdapters marks the pods as waiting for the list.
func awaitAdapters(in Input, template *corev1.PodTemplateSpec) {
	if !in.isLive() {
		return
	}
	template.Annotations = over(template.Annotations, map[string]string{v1beta1.AnnotationAdapters: live.Pending})
}

// liveArgs returns the agent's flags for adapters that change.
func liveArgs(in Input) []string {
	if !in.isLive() {
		return nil
	}
	args := []string{
		"--adapters", path.Join(podDir, adaptersFile), "--adapters-dest", AdapterDir,
		"--adapters-engine", fmt.Sprintf("http://127.0.0.1:%d", in.Engine.LoopbackPort),
		"--adapters-guard", fmt.Sprintf(":%d", v1beta1.EnginePort),
		"--adapters-health", in.Engine.HealthPath, "--adapters-limit-gib", strconv.Itoa(adaptersGiB),
	}
	for _, pattern := range in.Engine.AdapterFiles.Weights {
		args = append(args, "--adapters-weights", pattern)
	}
	for _, pattern := range in.Engine.AdapterFiles.Others {
		args = append(args, "--adapters-include", pattern)
	}
	return args
}

// podFile is an annotation of the pod as a file.
func podFile(name, annotation string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{
		Path:     name,
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + annotation + "']"},
	}
}

func liveVolumes(in Input) []corev1.Volume {
	if !in.isLive() {
		return nil
	}
	return []corev1.Volume{
		{Name: volumePod, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{podFile(adaptersFile, v1beta1.AnnotationAdapters)},
		}}},
		{Name: volumeAdapters, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
}

// liveMounts returns the agent's mounts. The engine mounts the whole directory, because its parts come later.
func liveMounts(in Input) []corev1.VolumeMount {
	if !in.isLive() {
		return nil
	}
	return []corev1.VolumeMount{
		{Name: volumePod, MountPath: podDir, ReadOnly: true},
		{Name: volumeAdapters, MountPath: AdapterDir},
	}
}
