// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
)

// compiledDir is the directory for engines' compiled code in the cache. keptDir is where an engine mounts its own part.
const (
	compiledDir = "compiled"
	keptDir     = "/var/cache/compiled"
)

// CompileDir returns the directory for the engine's compiled code: in the namespace's cache if there is one, otherwise
// a temporary directory of the pod.
func CompileDir(in Input) string {
	if in.Compiled == "" || cacheClaim(in) == "" {
		return tmpDir + "/cache"
	}
	return keptDir
}

// Compiled returns the directory for an engine's compiled code, relative to the cache. It is different for each build,
// model and type of GPU. It is empty if the engine compiles nothing worth keeping.
func Compiled(in Input, data catalog.Engine) string {
	artifact := ptr.Deref(in.Plan.Artifact, model.Artifact{})
	if len(data.CompileCaches) == 0 || in.Plan.Accelerator == "" || artifact.Repo == "" {
		return ""
	}
	build := sha256.Sum256([]byte(in.Image))
	return path.Join(compiledDir, data.Name+"-"+plain(data.Version)+"-"+hex.EncodeToString(build[:4]),
		plain(artifact.Repo)+"-"+plain(artifact.Quantization), plain(in.Plan.Accelerator))
}

// plain turns a text into the name of a directory.
func plain(text string) string {
	return strings.ToLower(regexp.MustCompile(`[^a-zA-Z0-9.]+`).ReplaceAllString(text, "-"))
}

// compiledArgs makes the agent create the directory. If the kubelet created it, it would belong to root.
func compiledArgs(in Input) []string {
	if CompileDir(in) != keptDir {
		return nil
	}
	return []string{"--cache-directory", in.Compiled}
}

// compiledMounts returns the engine's mount of its own directory in the cache, which the engine may write to.
func compiledMounts(in Input) []corev1.VolumeMount {
	if CompileDir(in) != keptDir {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeCache, MountPath: keptDir, SubPath: in.Compiled}}
}
