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

// compiledDir is the directory of a cache that holds what engines have compiled, and keptDir where an engine
// finds its own.
const (
	compiledDir = "compiled"
	keptDir     = "/var/cache/compiled"
)

// CompileDir is where the engine keeps what it compiles: as long as the pod lasts, or with the weights where the
// namespace has a cache.
func CompileDir(in Input) string {
	if in.Compiled == "" || cacheClaim(in) == "" {
		return tmpDir + "/cache"
	}
	return keptDir
}

// Compiled names what an engine compiles, below the cache, so that nobody finds what was compiled by another
// build, for another model or for another GPU. Empty where the engine compiles nothing that can be kept.
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

// compiledMounts are the engine's. It sees no more of the cache than its own directory, where it may write.
func compiledMounts(in Input) []corev1.VolumeMount {
	if CompileDir(in) != keptDir {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeCache, MountPath: keptDir, SubPath: in.Compiled}}
}
