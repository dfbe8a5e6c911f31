// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"crypto/sha256"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Informers returns the informer of a kind, which reports its deletions.
type Informers interface {
	GetInformer(ctx context.Context, of client.Object, options ...cache.InformerGetOption) (cache.Informer, error)
}

// settled records the version of an object that matched, with the desired content. It saves the comparison, which is
// most of the cost of a pass over an unchanged Workspace. A record ends with its object, so there is at most one for
// each object in the cache. A record has about 100 bytes.
type settled struct {
	informers Informers

	mu       sync.Mutex
	seen     map[types.UID]match
	followed map[schema.GroupVersionKind]bool
}

// match is the hash of a version of an object and the desired content that it matched.
type match [sha256.Size]byte

func newSettled(informers Informers) *settled {
	return &settled{informers: informers, seen: map[types.UID]match{}, followed: map[schema.GroupVersionKind]bool{}}
}

// note records that an object matches. isCached reports whether the cache has an object of this name and UID. Without
// the reports of deletions, note records nothing.
func (s *settled) note(ctx context.Context, gvk schema.GroupVersionKind, desired, existing client.Object, isCached func() bool) {
	found, ok := matchOf(desired, existing)
	if !ok || !s.follow(ctx, gvk, desired) {
		return
	}
	uid := existing.GetUID()
	s.mu.Lock()
	s.seen[uid] = found
	s.mu.Unlock()
	// The deletion may have been reported before. The cache drops an object before it reports the deletion, so the
	// object is missing from the cache now, or its deletion is still to be reported.
	if !isCached() {
		s.forget(uid)
	}
}

// holds reports whether this version of the object is known to match desired.
func (s *settled) holds(desired, existing client.Object) bool {
	s.mu.Lock()
	known, ok := s.seen[existing.GetUID()]
	s.mu.Unlock()
	if !ok {
		return false
	}
	found, ok := matchOf(desired, existing)
	return ok && known == found
}

func (s *settled) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, uid)
}

// follow reports whether the deletions of a kind end its records.
func (s *settled) follow(ctx context.Context, gvk schema.GroupVersionKind, of client.Object) bool {
	if s.informers == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed[gvk] {
		return true
	}
	informer, err := s.informers.GetInformer(ctx, of, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: s.updated, DeleteFunc: s.deleted})
	}
	s.followed[gvk] = err == nil
	return err == nil
}

// updated ends the record of an object in whose place another one was created while the watch was interrupted.
func (s *settled) updated(before, after any) {
	if was := uidOf(before); was != uidOf(after) {
		s.forget(was)
	}
}

func (s *settled) deleted(object any) { s.forget(uidOf(object)) }

// uidOf returns the UID of an object from an informer; empty if it is unknown.
func uidOf(object any) types.UID {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	if known, ok := object.(metav1.Object); ok {
		return known.GetUID()
	}
	return ""
}

// matchOf returns the match to record; false if the desired object has no wire format. The wire format sorts maps, so
// equal contents have equal bytes.
func matchOf(desired, existing client.Object) (match, bool) {
	wire, ok := desired.(interface{ Marshal() ([]byte, error) })
	if !ok || existing.GetUID() == "" {
		return match{}, false
	}
	encoded, err := wire.Marshal()
	return sha256.Sum256(append(encoded, existing.GetResourceVersion()...)), err == nil
}
