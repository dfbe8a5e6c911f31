// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// promiseLife is how long room in a namespace is reserved for a Workspace whose pods do not exist yet. They are
// created within seconds, and count as used from then on.
const promiseLife = 2 * time.Minute

// Book checks one Workspace at a time, together with the earlier reservations. If a restart loses these, two
// simultaneous Workspaces may both be admitted.
type Book struct {
	checker *Checker

	mu       sync.Mutex
	promises map[types.UID]promise
}

type promise struct {
	namespace string
	usages    []Usage
	until     time.Time
}

// NewBook returns an empty Book.
func NewBook(checker *Checker) *Book {
	return &Book{checker: checker, promises: map[types.UID]promise{}}
}

// Reserve checks a demand and reserves the room for its pods. It returns the reason for a refusal, or nil.
func (b *Book) Reserve(now time.Time, owner types.UID, namespace Namespace, demand Demand) *Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.promises, owner)
	var others []Usage
	for uid, made := range b.promises {
		if !now.Before(made.until) {
			delete(b.promises, uid)
			continue
		}
		if made.namespace == namespace.Name {
			others = append(others, made.usages...)
		}
	}
	problem := b.checker.Check(namespace, demand, others)
	if problem == nil && len(namespace.Quotas) > 0 {
		b.promises[owner] = promise{namespace.Name, UsageOf(namespace, demand), now.Add(promiseLife)}
	}
	return problem
}

// Settle ends a promise: the pods exist, or are no longer wanted.
func (b *Book) Settle(owner types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.promises, owner)
}
