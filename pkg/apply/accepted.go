// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

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

// accepted remembers for a while what the API server said that it would make. Workspaces that come together mostly
// differ in nothing but their names, and each would have it asked the same.
type accepted struct{ seen *cache.LRUExpireCache }

func newAccepted(clock cache.Clock) *accepted {
	return &accepted{seen: cache.NewLRUExpireCacheWithClock(acceptedLimit, clock)}
}

func (a *accepted) note(shape [sha256.Size]byte) { a.seen.Add(shape, nil, acceptedFor) }

func (a *accepted) holds(shape [sha256.Size]byte) bool {
	_, isKnown := a.seen.Get(shape)
	return isKnown
}

// shapeOf is what an intent says but for its owner's name and UID, wherever these are in it, and for the hash of it
// all. Of the name it keeps what an API server may refuse: how long it is, and whether it will do for a label.
func shapeOf(owner client.Object, intent *unstructured.Unstructured) ([sha256.Size]byte, error) {
	encoded, err := json.Marshal(intent.Object) // sorts its maps
	for _, own := range []string{string(owner.GetUID()), intent.GetAnnotations()[v1beta1.AnnotationAppliedHash], owner.GetName()} {
		if own != "" {
			encoded = bytes.ReplaceAll(encoded, []byte(own), []byte{0})
		}
	}
	encoded = fmt.Appendf(encoded, "%d %t", len(owner.GetName()), len(validation.IsDNS1123Label(owner.GetName())) == 0)
	return sha256.Sum256(encoded), err
}
