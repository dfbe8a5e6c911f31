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
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/lookup"
)

// acceptedFor is the time that a positive answer of the API server counts. Until acceptedWhileAsking, it also counts
// while the next request is running: a busy API server takes longer than others wait, and everybody in this moment would
// come back behind all other work. acceptedLimit is the number of cached answers.
const (
	acceptedFor         = 10 * time.Second
	acceptedWhileAsking = 30 * time.Second
	acceptedLimit       = 256
)

// Bounds of running requests, so that a silent webhook does not block all workers.
const (
	mostAsking  = 8
	answerLimit = 500 * time.Millisecond
)

// accepted caches positive answers of the API server to dry runs. Workspaces created together usually differ only in
// their names, so each would send the same dry run. Objects created meanwhile may use up a quota, as after any dry run.
// Package admission counts the objects of this process.
type accepted struct {
	clock cache.Clock
	// seen has the time of each answer.
	seen *cache.LRUExpireCache
	// reads are the running requests. asking has an entry for each of them.
	reads  lookup.Reads
	asking chan struct{}
}

func newAccepted(clock cache.Clock) *accepted {
	return &accepted{
		clock: clock, seen: cache.NewLRUExpireCacheWithClock(acceptedLimit, clock), asking: make(chan struct{}, mostAsking),
	}
}

// ask sends a dry run to the API server, unless the same request is running. If so, ask waits for its answer. A
// positive answer and a timeout count for both requests. Any other error may concern only the other request. The error
// is a *lookup.BusyError if answers take too long.
func (a *accepted) ask(ctx context.Context, of shape, ask func(context.Context) error) error {
	for {
		var own error
		isOurs, err := a.reads.Do(ctx, of.String(), a.clock.Now(), func(ctx context.Context) error {
			if own = a.askInTurn(ctx, of, ask); own == nil {
				a.seen.Add(of, a.clock.Now(), acceptedWhileAsking)
			} else {
				a.seen.Remove(of)
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

// askInTurn sends the request once fewer than mostAsking requests are running.
func (a *accepted) askInTurn(ctx context.Context, of shape, ask func(context.Context) error) error {
	soon, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	select {
	case a.asking <- struct{}{}:
	case <-soon.Done():
		return of.busy()
	}
	defer func() { <-a.asking }()
	return ask(ctx)
}

// holds reports whether an earlier answer counts for a shape.
func (a *accepted) holds(of shape) bool {
	answered, isKnown := a.seen.Get(of)
	if !isKnown {
		return false
	}
	at, _ := answered.(time.Time)
	return a.clock.Now().Sub(at) < acceptedFor || a.reads.IsUnderway(of.String())
}

// shape is the planned content of an object without its owner.
type shape struct {
	kind, namespace string
	sum             [sha256.Size]byte
}

// String returns the key of the shape's running request.
func (s shape) String() string { return fmt.Sprintf("%s %s %x", s.kind, s.namespace, s.sum) }

// busy reports that answers about an object take too long.
func (s shape) busy() error {
	return &lookup.BusyError{Source: s.kind + "s of namespace " + s.namespace}
}

// shapeOf returns the content of an intent without its hash, and without its owner's name and UID anywhere. Of the
// name, it keeps the properties that an API server may reject: the length, and whether it is a valid label.
func shapeOf(owner client.Object, intent *unstructured.Unstructured) (shape, error) {
	encoded, err := json.Marshal(intent.Object) // sorts its maps
	for _, own := range []string{string(owner.GetUID()), intent.GetAnnotations()[v1beta1.AnnotationAppliedHash], owner.GetName()} {
		if own != "" {
			encoded = bytes.ReplaceAll(encoded, []byte(own), []byte{0})
		}
	}
	encoded = fmt.Appendf(encoded, "%d %t", len(owner.GetName()), len(validation.IsDNS1123Label(owner.GetName())) == 0)
	return shape{intent.GetKind(), intent.GetNamespace(), sha256.Sum256(encoded)}, err
}
