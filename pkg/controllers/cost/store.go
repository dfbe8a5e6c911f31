// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/cost"
)

const (
	// mostBytes is the largest size of one ConfigMap of the ledger, below the API server's limit of 1 MiB.
	mostBytes = 768 << 10
	// mostCopy is the largest size of the copy in a namespace.
	mostCopy = 256 << 10
	// urgency is the delay of an urgent write, after the beginning or the end of a machine, so that it includes others.
	urgency = 15 * time.Second
)

// read reads one shard. It returns the errors of the API server; an invalid ConfigMap sets the failure of the shard.
func (k *Keeper) read(ctx context.Context, name string) (*shard, error) {
	stored := &corev1.ConfigMap{}
	err := k.Live.Get(ctx, types.NamespacedName{Namespace: k.Namespace, Name: name}, stored)
	if apierrors.IsNotFound(err) {
		return &shard{name: name, ledger: cost.New()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", k.Namespace, name, err)
	}
	out := decoded(stored)
	out.tried = k.Clock.Now()
	return out, nil
}

// decoded returns the shard of a ConfigMap.
func decoded(stored *corev1.ConfigMap) *shard {
	data := []byte(stored.Data[v1beta1.CostLedgerKey])
	out := &shard{name: stored.Name, version: stored.ResourceVersion, content: sha256.Sum256(data)}
	if out.ledger, out.failure = cost.Decode(data); out.failure != nil {
		out.ledger = cost.New()
		return out
	}
	out.written, out.restarted = out.ledger.Seen, true
	return out
}

// store writes the shards that are due, or all changed ones. It returns the time until the next look; 0 if none is
// needed. A failed shard does not delay the others.
func (k *Keeper) store(ctx context.Context, all bool) (time.Duration, error) {
	now, next := k.Clock.Now(), time.Duration(0)
	var failures []error
	for i, s := range k.shards {
		if !s.isCurrent() { // the next look reads it first
			continue
		}
		due, isDirty := s.due(now, k.Interval)
		if isDirty && (all || due <= 0) {
			failures = append(failures, k.write(ctx, i, now))
			due, isDirty = k.Interval, s.ledger.IsOpen()
		}
		if isDirty || s.ledger.IsOpen() {
			next = sooner(next, due)
		}
	}
	if k.isComplete() && !k.publishStale(ctx) {
		next = sooner(next, lookAgain)
	}
	return next, errors.Join(failures...)
}

// isComplete reports whether all parts of the ledger can be read. A copy of an incomplete ledger would revoke published
// costs.
func (k *Keeper) isComplete() bool {
	return !slices.ContainsFunc(k.shards[:], func(s *shard) bool { return !s.isCurrent() })
}

// publishStale updates outdated copies in namespaces. If a namespace refuses its copy, the next try follows after its
// costs change, and delays nothing else. It returns false if other copies must be tried again.
func (k *Keeper) publishStale(ctx context.Context) bool {
	if !k.Publish || len(k.stale) == 0 {
		clear(k.stale)
		return true
	}
	for _, namespace := range slices.Sorted(maps.Keys(k.stale)) {
		err := k.publish(ctx, namespace)
		if err != nil {
			log.FromContext(ctx).Error(err, "cannot publish costs", "namespace", namespace)
		}
		if err == nil || isRefusal(err) {
			delete(k.stale, namespace)
		}
	}
	known := map[string]bool{}
	for _, s := range k.shards {
		for _, namespace := range s.ledger.Namespaces() {
			known[namespace] = true
		}
	}
	maps.DeleteFunc(k.published, func(namespace string, _ digest) bool { return !known[namespace] })
	return len(k.stale) == 0
}

// isRefusal reports whether the API server would refuse the same copy again.
func isRefusal(err error) bool {
	return isGone(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// isGone reports whether a namespace is gone or being deleted.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return max(b, time.Second)
	}
	return a
}

// due returns the time until a shard must be written, and whether it differs from its stored ConfigMap.
func (s *shard) due(now time.Time, interval time.Duration) (time.Duration, bool) {
	if s.changed.IsZero() {
		return interval, false
	}
	// A clock that jumped back must not delay the write forever.
	waited := min(max(now.Sub(s.written), 0), interval)
	if s.written.After(now) {
		waited = interval
	}
	due := interval - waited
	if s.isUrgent {
		due = min(due, urgency-max(now.Sub(s.changed), 0))
	}
	return due, true
}

// write stores one shard over the version that was last read or written. If another client has written it since, this
// process does not lead, or did not for a time: then the shard is read again.
func (k *Keeper) write(ctx context.Context, i int, now time.Time) error {
	s := k.shards[i]
	namespaces := s.ledger.Namespaces() // before Fit merges details
	data, err := s.ledger.Fit(mostBytes)
	if err != nil {
		return err
	}
	former := s.content
	s.content = sha256.Sum256(data)
	version, err := k.put(ctx, s, data)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		s.isOvertaken, s.content = true, former // nothing was written
		return fmt.Errorf("storing the cost ledger, which another client has changed or deleted: %w", err)
	}
	if err != nil {
		return fmt.Errorf("storing the cost ledger in ConfigMap %s/%s: %w", k.Namespace, s.name, err)
	}
	s.version = version
	s.written, s.changed, s.isUrgent = now, time.Time{}, false
	for _, namespace := range namespaces {
		k.stale[namespace] = true
	}
	return nil
}

// put writes the ConfigMap of a shard over its known version, or creates it, and returns its new version. If it were
// applied without a version, it would overwrite the ConfigMap that another leader has just created.
func (k *Keeper) put(ctx context.Context, s *shard, data []byte) (version string, err error) {
	if s.version == "" {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: s.name, Labels: k.labels()},
			Data:       map[string]string{v1beta1.CostLedgerKey: string(data)},
		}
		err := k.Client.Create(ctx, object, client.FieldOwner(apply.FieldOwner))
		return object.ResourceVersion, err
	}
	object := k.object(k.Namespace, s.name, data).WithResourceVersion(s.version)
	err = k.Client.Apply(ctx, object, client.FieldOwner(apply.FieldOwner), client.ForceOwnership)
	return ptr.Deref(object.ResourceVersion, ""), err
}

// publish writes the copy of a namespace's costs for its users. They may change or delete the copy, but mislead only
// themselves. Nothing is written for a deleted namespace.
func (k *Keeper) publish(ctx context.Context, namespace string) error {
	if namespace == "" || namespace == cost.Others {
		return nil
	}
	var parts []*cost.Ledger
	for _, s := range k.shards {
		parts = append(parts, s.ledger.Extract(namespace))
	}
	joined := cost.Join(parts...)
	data, err := joined.Fit(mostCopy)
	if err != nil {
		return err
	}
	content, err := digestOf(joined)
	if err != nil {
		return err
	}
	if _, isKnown := k.published[namespace]; !isKnown {
		k.recall(ctx, namespace)
	}
	if k.published[namespace] == content {
		return nil
	}
	object := k.object(namespace, v1beta1.CostConfigMap, data)
	err = k.Client.Apply(ctx, object, client.FieldOwner(apply.FieldOwner), client.ForceOwnership)
	if err == nil || isRefusal(err) {
		k.published[namespace] = content
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("publishing the costs of namespace %s: %w", namespace, err)
	}
	return nil
}

// recall reads the copy of a previous process once. If it is up to date, publish does not write it again.
func (k *Keeper) recall(ctx context.Context, namespace string) {
	stored := &corev1.ConfigMap{}
	err := k.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1beta1.CostConfigMap}, stored)
	if err != nil || stored.Labels[v1beta1.LabelCost] != k.Name {
		return
	}
	ledger, err := cost.Decode([]byte(stored.Data[v1beta1.CostLedgerKey]))
	if err != nil {
		return
	}
	if content, err := digestOf(ledger); err == nil {
		k.published[namespace] = content
	}
}

// digest identifies the content of a copy.
type digest [sha256.Size]byte

// digestOf returns the digest of a copy without its time.
func digestOf(copied *cost.Ledger) (digest, error) {
	seen := copied.Seen
	copied.Seen = time.Time{}
	data, err := copied.Encode()
	copied.Seen = seen
	return sha256.Sum256(data), err
}

func (k *Keeper) labels() map[string]string {
	return map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelCost: k.Name}
}

func (k *Keeper) object(namespace, name string, data []byte) *applycorev1.ConfigMapApplyConfiguration {
	return applycorev1.ConfigMap(name, namespace).
		WithLabels(k.labels()).
		WithData(map[string]string{v1beta1.CostLedgerKey: string(data)})
}
