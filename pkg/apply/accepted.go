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

// How long it holds that the API server would make an object, and of how many that is remembered.
const (
	acceptedFor   = 10 * time.Second
	acceptedLimit = 256
)

// Bounds of questions on their way: a webhook that does not answer must not hold up all workers.
const (
	mostAsking = 8
	patience   = 500 * time.Millisecond
)

// accepted remembers for a while what the API server said that it would make, until one of its kind is made in its
// namespace: that may have used a quota up. Workspaces that come together mostly differ in nothing but their names, and
// each would have it asked the same. Somebody else may use a quota up meanwhile, as after any such question.
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

// ask asks whether the API server would make an object, unless somebody is asking the same: that it would holds for
// both, and so does that it does not answer, while any other error may be about the other one only. The error is a
// *lookup.BusyError where answers take too long to wait for.
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

// forget drops what is known of the kind of an object in its namespace, and what is being asked.
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

// place is where objects of a kind are counted together.
type place struct{ kind, namespace string }

// shape is what an object is to be, but for whose it is.
type shape struct {
	place
	sum [sha256.Size]byte
}

// busy says that answers about an object take too long to wait for.
func (s shape) busy() error {
	return &lookup.BusyError{Source: s.kind + "s of namespace " + s.namespace}
}

// shapeOf is what an intent says but for its owner's name and UID, wherever these are in it, and for the hash of it
// all. Of the name it keeps what an API server may refuse: how long it is, and whether it will do for a label.
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
