// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// SparseGPU is a compute capability with kernels of sparse attention. Kernels are built for one generation, so a higher
// capability does not imply kernels.
type SparseGPU struct {
	Capability string `json:"capability"`
	// KVTypes of these kernels, the preferred one first; empty means any.
	KVTypes []string `json:"kvTypes,omitempty"`
	// Heads: on each GPU, the kernels compute a multiple of this number of query heads; 0 means any number.
	Heads int `json:"heads,omitempty"`
}

// KVCacheType is a type of a KV cache's elements, with its requirements. Names are the engine's names for the type.
type KVCacheType struct {
	Names []string `json:"names"`
	// Capability is the lowest compute capability with the type. Support ends below the capability Below; empty means
	// never.
	Capability string `json:"capability"`
	Below      string `json:"below,omitempty"`
	// PlainCapability is a lower capability that is enough for attention without sinks or latent vectors, if the heads
	// have one of PlainHeadDims.
	PlainCapability string `json:"plainCapability,omitempty"`
	PlainHeadDims   []int  `json:"plainHeadDims,omitempty"`
	// For is the only kind of attention that supports the type; empty means any.
	For AttentionKind `json:"for,omitempty"`
}

// AttentionKind selects the kernels that read a KV cache.
type AttentionKind string

// Kinds of attention.
const (
	// AttentionHeads keeps keys and values of heads.
	AttentionHeads AttentionKind = "heads"
	// AttentionSparse keeps latent vectors, of which an indexer selects some.
	AttentionSparse AttentionKind = "sparse"
)

// KVTypes returns the types of KV cache that plans may use.
func (e Engine) KVTypes() []string {
	var out []string
	for i := range e.KVCacheTypes {
		out = append(out, e.KVCacheTypes[i].Names...)
	}
	return out
}

// KVType returns a type of KV cache; nil if no plan may use it.
func (e *Engine) KVType(name string) *KVCacheType {
	for i := range e.KVCacheTypes {
		if slices.Contains(e.KVCacheTypes[i].Names, name) {
			return &e.KVCacheTypes[i]
		}
	}
	return nil
}

func cloneSparse(all []SparseGPU) []SparseGPU {
	all = slices.Clone(all)
	for i := range all {
		all[i].KVTypes = slices.Clone(all[i].KVTypes)
	}
	return all
}

func cloneKVTypes(all []KVCacheType) []KVCacheType {
	all = slices.Clone(all)
	for i := range all {
		all[i].Names, all[i].PlainHeadDims = slices.Clone(all[i].Names), slices.Clone(all[i].PlainHeadDims)
	}
	return all
}

// caches checks an engine's KV cache types and sparse attention.
func (c *check) caches(e Engine) {
	seen := map[string]bool{}
	for i, t := range e.KVCacheTypes {
		field := fmt.Sprintf("kvCacheTypes[%d]", i)
		if len(t.Names) == 0 {
			c.fail(field+".names", "[]", "must name a type")
		}
		for _, name := range t.Names {
			if !slices.Contains(e.Flags["kv-cache-dtype"].Values, name) {
				c.fail(field+".names", fmt.Sprintf("%q", name), "is not one of flags.kv-cache-dtype.values")
			}
			if seen[name] {
				c.fail(field+".names", fmt.Sprintf("%q", name), "is given twice")
			}
			seen[name] = true
		}
		c.kvType(field, t)
	}
	for i, s := range e.SparseAttention {
		field := fmt.Sprintf("sparseAttention[%d]", i)
		c.text(field+".capability", s.Capability, isCapability, mustCapability)
		if s.Heads < 0 {
			c.fail(field+".heads", fmt.Sprint(s.Heads), "must be 0 or more")
		}
		for _, name := range s.KVTypes {
			if !seen[name] {
				c.fail(field+".kvTypes", fmt.Sprintf("%q", name), "is not one of kvCacheTypes")
			}
		}
		if slices.ContainsFunc(e.SparseAttention[:i], func(other SparseGPU) bool { return other.Capability == s.Capability }) {
			c.fail(field+".capability", fmt.Sprintf("%q", s.Capability), "is given twice")
		}
	}
}

const mustCapability = `must be two numbers such as "8.0"`

func (c *check) kvType(field string, t KVCacheType) {
	c.text(field+".capability", t.Capability, isCapability, mustCapability)
	if t.Below != "" {
		c.text(field+".below", t.Below, isCapability, mustCapability)
	}
	if t.PlainCapability != "" {
		c.text(field+".plainCapability", t.PlainCapability, isCapability, mustCapability)
	}
	if (t.PlainCapability != "") != (len(t.PlainHeadDims) > 0) {
		c.fail(field+".plainHeadDims", strings.Join(strings.Fields(fmt.Sprint(t.PlainHeadDims)), ", "), "must be set together with plainCapability")
	}
	for _, dim := range t.PlainHeadDims {
		c.within(field+".plainHeadDims", float64(dim), 1, mostHeadDim)
	}
	if t.For != "" {
		c.oneOf(field+".for", string(t.For), string(AttentionHeads), string(AttentionSparse))
	}
}
