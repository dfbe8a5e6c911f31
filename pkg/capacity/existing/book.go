// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package existing

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Promise has the planned nodes of a Workspace, and its share of each node. The accepted plan stores the promise, so a
// restart loses nothing.
type Promise struct {
	Owner capacity.Owner `json:"-"`
	Nodes []string       `json:"nodes"`
	// GPUs is a number of Resource. Promises of earlier versions have no Resource.
	GPUs      int    `json:"gpus,omitempty"`
	Resource  string `json:"resource,omitempty"`
	CPUs      int    `json:"cpus,omitempty"`
	MemoryGiB int    `json:"memoryGiB,omitempty"`
	DiskGiB   int    `json:"diskGiB,omitempty"`
}

// PromiseOf returns a plan's use of existing nodes. It has no nodes if the plan buys machines.
func PromiseOf(owner capacity.Owner, plan *planner.Plan) Promise {
	return Promise{
		Owner: owner, Nodes: plan.NodeNames,
		GPUs: plan.GPUsPerNode, Resource: plan.GPUResource, CPUs: plan.CPUs, MemoryGiB: plan.MemoryGiB, DiskGiB: plan.DiskGiB,
	}
}

func (p *Promise) amount() amount {
	out := amount{millis: int64(p.CPUs) * 1000, memory: int64(p.MemoryGiB) << 30, disk: int64(p.DiskGiB) << 30}
	profile, isSlice := strings.CutPrefix(p.Resource, sliceResource)
	if isSlice || p.Resource == "" {
		out.slices = map[string]int64{profile: int64(p.GPUs)}
	}
	if !isSlice {
		out.gpus = int64(p.GPUs)
	}
	return out
}

// bookLife is how long the book keeps a promise. After that, the plan is stored and in the cache, or was never stored.
const bookLife = time.Minute

// Book keeps a promise from its planning until the accepted plan is in the cache. The zero value is empty.
type Book struct {
	mu    sync.Mutex
	fresh map[types.UID]entry
}

type entry struct {
	promise Promise
	at      time.Time
}

// Plan calls the function plan, never for two Workspaces at once, and passes it the recent promises in the book and those
// of accepted plans. The result of plan replaces the owner's earlier promise.
func (b *Book) Plan(now time.Time, owner capacity.Owner, accepted []Promise, plan func(promised []Promise) Promise) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var promised []Promise
	for uid, known := range b.fresh {
		if now.Sub(known.at) > bookLife {
			delete(b.fresh, uid)
			continue
		}
		promised = append(promised, known.promise)
	}
	made := plan(append(promised, accepted...))
	delete(b.fresh, owner.UID)
	if len(made.Nodes) == 0 {
		return
	}
	if b.fresh == nil {
		b.fresh = map[types.UID]entry{}
	}
	b.fresh[owner.UID] = entry{promise: made, at: now}
}
