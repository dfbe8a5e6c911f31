// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cost"
)

// load reads the parts of the ledger that this process lacks. It reads them from the API server, because the previous
// leader may just have written them. A missing part continues from the memory of this process, or from the copies in
// the namespaces. A damaged part continues only from the memory of this process; otherwise it stays as it is until
// somebody restores or deletes it.
//
// load changes nothing before all reads have succeeded: if only one read finds a part missing, the part must not pass
// for an empty one.
func (k *Keeper) load(ctx context.Context, seen *observed) error {
	fresh := map[int]*shard{}
	var missing []int
	for i, known := range k.shards {
		if known.isCurrent() || known != nil && known.failure != nil && k.Clock.Since(known.tried) < lookAgain {
			continue
		}
		read, err := k.read(ctx, k.Name+"-"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		fresh[i] = read
		if read.isGone() && !known.isOverwritten(read) {
			missing = append(missing, i)
		}
	}
	copies, err := k.copies(ctx, k.affected(seen, missing, fresh))
	if err != nil {
		return err
	}
	for _, i := range slices.Sorted(maps.Keys(fresh)) {
		k.take(ctx, i, fresh[i])
	}
	k.restore(ctx, seen, missing, copies)
	return nil
}

// take continues with a part as read, or from the memory of this process.
func (k *Keeper) take(ctx context.Context, i int, read *shard) {
	known := k.shards[i]
	if known.isOverwritten(read) {
		k.resume(ctx, known, read)
		return
	}
	if known.wrote(read) {
		known.version, known.isOvertaken = read.version, false
		return
	}
	if read.failure != nil && (known == nil || known.failure == nil) {
		log.FromContext(ctx).Error(read.failure, "cannot read a part of the cost ledger: restore or delete its ConfigMap; until then, "+
			"nothing is bought in namespaces with a monthly budget", "namespace", k.Namespace, "configMap", read.name)
	}
	if read.written.IsZero() { // the cluster itself shows everything except ended machines
		read.written = k.Clock.Now()
	}
	k.shards[i] = read
	for _, namespace := range read.ledger.Namespaces() { // a former process may have ended before it wrote the copies
		k.stale[namespace] = true
	}
}

// isOverwritten reports whether this process remembers a part whose ConfigMap is lost.
func (s *shard) isOverwritten(read *shard) bool { return s != nil && s.failure == nil && read.isLost() }

// wrote reports whether a ConfigMap has the content that this process last wrote: the answer to the write was lost, or
// somebody has changed only the metadata. The memory may know more, such as the end of a machine.
func (s *shard) wrote(read *shard) bool {
	return s != nil && s.failure == nil && read.version != "" && read.content == s.content
}

// isGone reports whether the ConfigMap does not exist.
func (s *shard) isGone() bool { return s.version == "" && s.failure == nil }

// isLost reports whether a ConfigMap is gone or damaged. A ConfigMap of a newer version is neither: a newer leader
// wrote it.
func (s *shard) isLost() bool {
	if s.failure == nil {
		return s.version == ""
	}
	_, isOfOther := errors.AsType[*cost.VersionError](s.failure)
	return !isOfOther
}

// resume continues from the memory of this process, because the ConfigMap is lost.
func (k *Keeper) resume(ctx context.Context, known, read *shard) {
	why := read.failure
	if why == nil {
		why = errors.New("its ConfigMap is gone")
	}
	log.FromContext(ctx).Error(why, "somebody deleted or damaged a part of the cost ledger: writing it again from memory",
		"namespace", k.Namespace, "configMap", known.name)
	known.version, known.isOvertaken, known.isRestored = read.version, false, true
	known.note(k.Clock.Now(), true, true)
}

// copies reads the copies in the namespaces that may have costs in missing parts, with one request per namespace. Users
// of a namespace can change its copy, but then mislead only themselves. Without the copies, the costs of ended machines
// would be lost.
func (k *Keeper) copies(ctx context.Context, namespaces []string) (map[string]*cost.Ledger, error) {
	out := map[string]*cost.Ledger{}
	for _, namespace := range namespaces {
		copied, err := k.copyOf(ctx, namespace)
		if err != nil {
			return nil, err
		}
		if copied != nil {
			out[namespace] = copied
		}
	}
	return out, nil
}

// restore fills missing parts from copies. Parts that never had costs also count as missing, and stay empty. The first
// one gets the merged costs that are in no other part.
func (k *Keeper) restore(ctx context.Context, seen *observed, missing []int, copies map[string]*cost.Ledger) {
	merged := k.merged(ctx, missing, copies)
	for n, i := range missing {
		parts := map[string]*cost.Ledger{}
		for namespace, copied := range copies {
			part := copied.Select(func(name cost.Name) bool {
				return name.Namespace == namespace && name.Workspace != cost.Others && shardOf(name.Namespace, name.Workspace) == i
			})
			if n == 0 && merged[namespace] != nil {
				part = cost.Join(part, merged[namespace])
			}
			if len(part.Namespaces()) > 0 {
				parts[namespace] = part
			}
		}
		if len(parts) == 0 {
			continue
		}
		s := k.shards[i]
		s.ledger, s.restarted, s.isRestored = cost.Restore(k.Clock.Now(), parts, seen.machines[i]), true, true
		s.note(k.Clock.Now(), true, true)
		log.FromContext(ctx).Error(errors.New("its ConfigMap is gone"), "a part of the cost ledger continues from the copies in the namespaces",
			"namespace", k.Namespace, "configMap", s.name, "namespaces", strings.Join(slices.Sorted(maps.Keys(parts)), ","))
	}
}

// merged returns the merged costs of namespaces that only their copies have. While another part is damaged, that part
// may hold some of these costs. They are then dropped, because they must not count twice after the repair.
func (k *Keeper) merged(ctx context.Context, missing []int, copies map[string]*cost.Ledger) map[string]*cost.Ledger {
	var parts []*cost.Ledger
	isReadable := true
	for _, s := range k.shards {
		isReadable = isReadable && s.failure == nil
		parts = append(parts, s.ledger)
	}
	out := map[string]*cost.Ledger{}
	for _, namespace := range slices.Sorted(maps.Keys(copies)) {
		merged := cost.Merged(copies[namespace], namespace, parts)
		switch {
		case len(missing) == 0 || len(merged.Namespaces()) == 0:
		case isReadable:
			out[namespace] = merged
		default:
			log.FromContext(ctx).Error(errors.New("another part of the cost ledger cannot be read"), "the ConfigMap of a part of the cost ledger is gone: the part "+
				"continues without the costs that were merged into "+cost.Others, "namespace", namespace)
		}
	}
	return out
}

// affected returns the namespaces that may have costs in missing parts: those with Workspaces there, those with a
// budget, and those with costs in other parts, because each part merges accounts on its own.
func (k *Keeper) affected(seen *observed, missing []int, fresh map[int]*shard) []string {
	if len(missing) == 0 || !k.Publish {
		return nil
	}
	out := map[string]bool{}
	for namespace := range k.budgets {
		out[namespace] = true
	}
	for name := range seen.workspaces {
		if slices.Contains(missing, shardOf(name.Namespace, name.Workspace)) {
			out[name.Namespace] = true
		}
	}
	for i, s := range k.shards {
		if read := fresh[i]; read != nil {
			s = read
		}
		for _, namespace := range s.ledger.Namespaces() {
			out[namespace] = true
		}
	}
	delete(out, cost.Others)
	delete(out, "")
	return slices.Sorted(maps.Keys(out))
}

// copyOf reads the copy in a namespace; nil if it is missing or unreadable.
func (k *Keeper) copyOf(ctx context.Context, namespace string) (*cost.Ledger, error) {
	stored := &corev1.ConfigMap{}
	err := k.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1beta1.CostConfigMap}, stored)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err): // a retry would also be forbidden, and must not delay the other namespaces
		log.FromContext(ctx).Error(err, "cannot read the copy of the cost ledger in a namespace", "namespace", namespace)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the copy of the cost ledger in namespace %s: %w", namespace, err)
	case stored.Labels[v1beta1.LabelCost] != k.Name:
		return nil, nil
	}
	ledger, err := cost.Decode([]byte(stored.Data[v1beta1.CostLedgerKey]))
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot read the copy of the cost ledger in a namespace", "namespace", namespace)
		return nil, nil
	}
	return ledger, nil
}
