// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/lookup"
)

// How long a positive answer of the API server counts, and how many answers are kept.
const (
	acceptedFor   = 10 * time.Second
	acceptedLimit = 256
)

// Bounds of running requests: a webhook that does not answer must not block all workers.
const (
	mostAsking = 8
	patience   = 500 * time.Millisecond
)

// accepted remembers for a while that the API server would create an object, until one of its kind is created in
// its namespace: that may use up a quota. Workspaces that arrive together mostly differ only in their names, so
// each would ask the same. Another client may still use up a quota in the meantime, as after any such request.
type accepted struct {
	clock cache.Clock
	seen  *cache.LRUExpireCache
	// reads are the questions that are on their way, and asking has an entry for each.
	reads  lookup.Reads
	asking chan struct{}

	mu sync.Mutex
	// made is how many objects of a kind have been made in a namespace.
	made map[place]int
}

func newAccepted(clock cache.Clock) *accepted {
	return &accepted{
		clock: clock, seen: cache.NewLRUExpireCacheWithClock(acceptedLimit, clock), made: map[place]int{},
		asking: make(chan struct{}, mostAsking),
	}
}

// ask asks whether the API server would create an object, unless the same request is running. A positive answer and
// a timeout count for both; any other error may concern only the other one. The error is a *lookup.BusyError if
// answers take too long.
func (a *accepted) ask(ctx context.Context, of shape, ask func(context.Context) error) error {
	before := a.count(of.place)
	for {
		var own error
		isOurs, err := a.reads.Do(ctx, fmt.Sprintf("%v after %d", of, before), a.clock.Now(), func(ctx context.Context) error {
			if own = a.askInTurn(ctx, of, ask); own == nil && a.count(of.place) == before {
				a.seen.Add(of, nil, acceptedFor)
			}
			if errors.Is(own, context.DeadlineExceeded) {
				return own
			}
			return nil
		})
		if _, isBusy := errors.AsType[*lookup.BusyError](err); isBusy {
			return of.busy()
		}
		if isOurs {
			return own
		}
		if err != nil || a.holds(of) {
			return err
		}
	}
}

// askInTurn asks once fewer than mostAsking questions are on their way.
func (a *accepted) askInTurn(ctx context.Context, of shape, ask func(context.Context) error) error {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case a.asking <- struct{}{}:
	case <-soon.Done():
		return of.busy()
	}
	defer func() { <-a.asking }()
	return ask(ctx)
}

func (a *accepted) count(of place) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.made[of]
}

func (a *accepted) holds(of shape) bool {
	_, isKnown := a.seen.Get(of)
	return isKnown
}

// forget drops the answers about an object's kind in its namespace, and the running requests.
func (a *accepted) forget(made *unstructured.Unstructured) {
	of := place{made.GetKind(), made.GetNamespace()}
	a.mu.Lock()
	a.made[of]++
	a.mu.Unlock()
	a.seen.RemoveAll(func(key any) bool {
		known, isShape := key.(shape)
		return isShape && known.place == of
	})
}

// place is a kind in a namespace: a quota counts its objects together.
type place struct{ kind, namespace string }

// shape is the planned content of an object without its owner.
type shape struct {
	place
	sum [sha256.Size]byte
}

// busy reports that answers about an object take too long.
func (s shape) busy() error {
	return &lookup.BusyError{Source: s.kind + "s of namespace " + s.namespace}
}

// shapeOf is the content of an intent without its owner's name and UID, wherever they occur, and without the hash
// of the whole. Of the name it keeps the parts that an API server may reject: the length, and whether it is a valid
// label.
func shapeOf(owner client.Object, intent *unstructured.Unstructured) (shape, error) {
	encoded, err := json.Marshal(intent.Object) // sorts its maps
	for _, own := range []string{string(owner.GetUID()), intent.GetAnnotations()[v1beta1.AnnotationAppliedHash], owner.GetName()} {
		if own != "" {
			encoded = bytes.ReplaceAll(encoded, []byte(own), []byte{0})
		}
	}
	encoded = fmt.Appendf(encoded, "%d %t", len(owner.GetName()), len(validation.IsDNS1123Label(owner.GetName())) == 0)
	return shape{place{intent.GetKind(), intent.GetNamespace()}, sha256.Sum256(encoded)}, err
}
