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

// compiledDir is the directory of a cache for engines' compiled code, and keptDir is an engine's own mount of it.
const (
	compiledDir = "compiled"
	keptDir     = "/var/cache/compiled"
)

// CompileDir is the directory for the engine's compiled code: in the namespace's cache if it has one, otherwise a temporary
// directory of the pod.
func CompileDir(in Input) string {
	if in.Compiled == "" || cacheClaim(in) == "" {
		return tmpDir + "/cache"
	}
	return keptDir
}

// Compiled names an engine's compiled code below the cache: no other build, model or GPU has the same name. Empty
// if the engine compiles nothing worth keeping.
func Compiled(in Input, data catalog.Engine) string {
	artifact := ptr.Deref(in.Plan.Artifact, model.Artifact{})
	if len(data.CompileCaches) == 0 || in.Plan.Accelerator == "" || artifact.Repo == "" {
		return ""
	}
	build := sha256.Sum256([]byte(in.Image))
	return path.Join(compiledDir, data.Name+"-"+plain(data.Version)+"-"+hex.EncodeToString(build[:4]),
		plain(artifact.Repo)+"-"+plain(artifact.Quantization), plain(in.Plan.Accelerator))
}

// plain is a text as a directory's name.
func plain(text string) string {
	return strings.ToLower(regexp.MustCompile(`[^a-zA-Z0-9.]+`).ReplaceAllString(text, "-"))
}

// compiledArgs have the agent make the directory: the kubelet would make it root's.
func compiledArgs(in Input) []string {
	if CompileDir(in) != keptDir {
		return nil
	}
	return []string{"--cache-directory", in.Compiled}
}

// compiledMounts are the engine's. It sees only its own directory of the cache, and may write to it.
func compiledMounts(in Input) []corev1.VolumeMount {
	if CompileDir(in) != keptDir {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeCache, MountPath: keptDir, SubPath: in.Compiled}}
}
