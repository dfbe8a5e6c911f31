// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package existing

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Promise is nodes that a Workspace was planned onto, and what it will take of each. It is kept with the
// accepted plan, so that a restart forgets nothing.
type Promise struct {
	Owner     capacity.Owner `json:"-"`
	Nodes     []string       `json:"nodes"`
	GPUs      int            `json:"gpus,omitempty"`
	CPUs      int            `json:"cpus,omitempty"`
	MemoryGiB int            `json:"memoryGiB,omitempty"`
	DiskGiB   int            `json:"diskGiB,omitempty"`
}

// PromiseOf is what a plan takes of nodes that are there; it names no nodes where machines are bought.
func PromiseOf(owner capacity.Owner, plan *planner.Plan) Promise {
	return Promise{
		Owner: owner, Nodes: plan.NodeNames,
		GPUs: plan.GPUsPerNode, CPUs: plan.CPUs, MemoryGiB: plan.MemoryGiB, DiskGiB: plan.DiskGiB,
	}
}

func (p *Promise) amount() amount {
	return amount{gpus: int64(p.GPUs), millis: int64(p.CPUs) * 1000, memory: int64(p.MemoryGiB) << 30, disk: int64(p.DiskGiB) << 30}
}

// bookLife is how long the book keeps a promise: by then the plan that it was made for is stored and the
// cache shows it, or was never stored.
const bookLife = time.Minute

// Book keeps what was promised from the moment that it is planned until the accepted plan is seen. The zero
// value is an empty one.
type Book struct {
	mu    sync.Mutex
	fresh map[types.UID]entry
}

type entry struct {
	promise Promise
	at      time.Time
}

// Plan lets one Workspace at a time plan, with what was promised to all: by the accepted plans that are seen,
// and lately. What plan returns is promised to the owner in place of what was before.
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
