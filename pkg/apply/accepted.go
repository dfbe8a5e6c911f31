// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// How long it holds that the API server would make an object, and of how many that is remembered.
const (
	acceptedFor   = 10 * time.Second
	acceptedLimit = 256
)

// accepted remembers for a while what the API server said that it would make, until one of its kind is made in its
// namespace: that may have used a quota up. Workspaces that come together mostly differ in nothing but their names, and
// each would have it asked the same. Somebody else may use a quota up meanwhile, as after any such question.
type accepted struct {
	seen *cache.LRUExpireCache
	// asking are the questions that are on their way.
	asking singleflight.Group
}

func newAccepted(clock cache.Clock) *accepted {
	return &accepted{seen: cache.NewLRUExpireCacheWithClock(acceptedLimit, clock)}
}

// ask asks whether the API server would make an object, unless somebody is asking the same: that it would holds for
// both, while an error may be about the other one only.
func (a *accepted) ask(of shape, ask func() error) error {
	isOurs := false
	_, err, _ := a.asking.Do(of.String(), func() (any, error) {
		isOurs = true
		err := ask()
		if err == nil {
			a.seen.Add(of, nil, acceptedFor)
		}
		return nil, err
	})
	if err != nil && !isOurs {
		return ask()
	}
	return err
}

func (a *accepted) holds(of shape) bool {
	_, isKnown := a.seen.Get(of)
	return isKnown
}

// forget drops what is known of the kind of an object in its namespace.
func (a *accepted) forget(made *unstructured.Unstructured) {
	a.seen.RemoveAll(func(key any) bool {
		known, isShape := key.(shape)
		return isShape && known.kind == made.GetKind() && known.namespace == made.GetNamespace()
	})
}

// shape is what an object is to be, but for whose it is.
type shape struct {
	kind, namespace string
	sum             [sha256.Size]byte
}

// String tells it from all others.
func (s shape) String() string { return fmt.Sprintf("%s %s %x", s.namespace, s.kind, s.sum) }

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
	return shape{kind: intent.GetKind(), namespace: intent.GetNamespace(), sum: sha256.Sum256(encoded)}, err
}
