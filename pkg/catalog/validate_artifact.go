// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// mostBytes is more than the weights of any model have.
const mostBytes = 1 << 43

// artifacts checks all artifacts of a model.
func (c *check) artifacts(all []model.Artifact) {
	seen := map[string]bool{}
	for i, a := range all {
		field := fmt.Sprintf("artifacts[%d]", i)
		c.artifact(field, a)
		if key := a.Engine + "/" + a.Quantization; seen[key] {
			c.fail(field+".quantization", fmt.Sprintf("%q", a.Quantization), "is given twice for engine "+a.Engine)
		} else {
			seen[key] = true
		}
	}
}

// artifact checks one artifact of a model.
func (c *check) artifact(field string, a model.Artifact) {
	c.text(field+".engine", a.Engine, isLowerName, "must be an engine's name")
	c.text(field+".repo", a.Repo, isRepo, "must be a repository such as org/Model-GGUF")
	for i, repo := range a.Siblings {
		c.text(fmt.Sprintf("%s.siblings[%d]", field, i), repo, isRepo, "must be a repository such as org/Model")
	}
	if len(a.Siblings) > 0 && len(a.Files) > 0 {
		c.fail(field+".siblings", a.Siblings, "must not be set for an artifact with files, because its files are in one repository")
	}
	c.text(field+".revision", a.Revision, isRevision, "must be a branch, tag or commit")
	c.text(field+".quantization", a.Quantization, isLowerName, "must be a lower-case name such as f16")
	switch {
	case len(a.Files) == 0:
		if a.WeightBytes == 0 && c.err == nil {
			c.fail(field+".files", "[]", "must name a file, unless weightBytes is the size of all tensors")
		}
		c.within(field+".weightBytes", float64(a.WeightBytes), 1, mostBytes)
	case a.WeightBytes != 0:
		c.fail(field+".weightBytes", a.WeightBytes, "must not be set for an artifact with files")
	case a.WeightBasis != "":
		c.fail(field+".weightBasis", fmt.Sprintf("%q", a.WeightBasis), "must not be set for an artifact with files")
	}
	c.bytesBasis(field+".weightBasis", a.WeightBasis)
	if a.IdleBytes != 0 && (a.IdleBytes < 0 || a.IdleBytes >= a.WeightBytes) {
		c.fail(field+".idleBytes", a.IdleBytes, fmt.Sprintf("must be above 0 and below weightBytes: %d", a.WeightBytes))
	}
	c.files(field, a.Files)
	c.artifactFlags(field, a.Flags)
}

func (c *check) files(field string, files []model.File) {
	paths := map[string]bool{}
	for i, f := range files {
		file := fmt.Sprintf("%s.files[%d]", field, i)
		if !isFilePath(f.Path) {
			c.fail(file+".path", fmt.Sprintf("%q", f.Path), "must be a path within the repository")
		}
		if paths[f.Path] {
			c.fail(file+".path", fmt.Sprintf("%q", f.Path), "is given twice")
		}
		paths[f.Path] = true
		c.within(file+".bytes", float64(f.Bytes), 1, mostBytes)
		c.bytesBasis(file+".bytesBasis", f.BytesBasis)
		if f.SHA256 != "" {
			c.text(file+".sha256", f.SHA256, isSHA256, "must be 64 lower-case hexadecimal digits")
		}
	}
}

func (c *check) bytesBasis(field string, basis model.BytesBasis) {
	if !slices.Contains([]model.BytesBasis{"", model.BytesExact, model.BytesEstimated}, basis) {
		c.fail(field, fmt.Sprintf("%q", basis), "must be exact or estimated")
	}
}

// artifactFlags checks the required flags of an artifact.
func (c *check) artifactFlags(field string, flags []model.Flag) {
	names := map[string]bool{}
	for i, f := range flags {
		flag := fmt.Sprintf("%s.flags[%d]", field, i)
		c.text(flag+".name", f.Name, isName, "must be a flag's name without dashes")
		if names[f.Name] {
			c.fail(flag+".name", fmt.Sprintf("%q", f.Name), "is given twice")
		}
		names[f.Name] = true
		if strings.ContainsAny(f.Value, "\r\n\x00") {
			c.fail(flag+".value", fmt.Sprintf("%.40q", f.Value), "must be one line")
		}
		if f.Why == "" || len(f.Why) > longestReason || strings.ContainsAny(f.Why, "\r\n") {
			c.fail(flag+".why", fmt.Sprintf("%.40q", f.Why), fmt.Sprintf("must be one line of at most %d bytes", longestReason))
		}
	}
}
