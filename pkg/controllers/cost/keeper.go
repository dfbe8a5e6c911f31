// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost keeps the ledger of machine time in the cluster. It watches machines and Workspaces, reads the engines'
// token counters, and stores the ledger in ConfigMaps of the controller's namespace. It also writes a copy of each
// namespace's part into that namespace.
//
// It decides when to look and when to write; pkg/cost decides the accounting. It must not buy or delete anything.
package cost

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// MachineCosts returns the costs of all machines from caches.
type MachineCosts interface {
	MachineCosts(ctx context.Context) ([]capacity.MachineCost, error)
}

// Engines reads the counters of running engines.
type Engines interface {
	Tokens(ctx context.Context, engine string, at engineprobe.Endpoint) (engineprobe.Tokens, error)
}

// Speeds records the speed of the engine in a Workspace's pod.
type Speeds interface {
	Note(ws *v1beta1.Workspace, pod types.UID, at time.Time, read *engineprobe.Speed)
}

// Config holds the settings and dependencies of a Keeper.
type Config struct {
	// Client reads from caches and writes; Live reads past the caches.
	Client       client.Client
	Live         client.Reader
	MachineCosts MachineCosts
	// Engines is nil if the controller does not count tokens.
	Engines Engines
	// Speeds is nil if no speeds are recorded.
	Speeds Speeds
	Clock  clock.PassiveClock
	// Namespace is the namespace of the ledger's ConfigMaps, and Name the prefix of their names.
	Namespace, Name string
	// Interval is the time between writes of the same ConfigMap. The beginning and the end of a machine are written
	// sooner.
	Interval time.Duration
	// Labels are the keys of the Workspace labels for grouping costs.
	Labels []string
	// Publish enables a copy of each namespace's costs in that namespace.
	Publish bool
	// PriceSource names the source of prices.
	PriceSource string
}

// Keeper keeps the ledger. As a Reconciler, it has one key for machines and one for tokens.
type Keeper struct {
	Config

	mu     sync.Mutex
	shards [cost.Shards]*shard
	// looked is the time of the last look at the machines; zero before the first look of this process.
	looked time.Time
	// published holds the last written or refused copy of each namespace. stale has the namespaces whose copy may be
	// outdated.
	published map[string]digest
	stale     map[string]bool
	// budgets are the budgets of namespaces at the last look.
	budgets map[string]cost.Budget
	// turn is the index of the engine with which the next round begins.
	turn int
	// month is the snapshot for metrics and purchases; nil before the first look.
	month atomic.Pointer[month]
	// isFailing reports whether the last look failed, so that the snapshot lacks later costs.
	isFailing atomic.Bool
}

// shard is one ConfigMap of the ledger.
type shard struct {
	name   string
	ledger *cost.Ledger
	// version is the resource version of the stored ConfigMap; empty if there is none.
	version string
	// content is the digest of the content that this process has read, or last may have written.
	content digest
	// written is the time of the last write. changed is the time of the first change since then, and isUrgent reports
	// whether the change must be stored soon: the beginning or the end of a machine.
	written, changed time.Time
	isUrgent         bool
	// restarted is true until the first look at a ledger from another process.
	restarted bool
	// failure explains why the ConfigMap cannot be read. Then the Keeper does not change it, and reads it again a while
	// after tried.
	failure error
	tried   time.Time
	// isOvertaken reports whether another process has written the ConfigMap since. The Keeper reads it again.
	isOvertaken bool
	// isRestored reports whether the ConfigMap was lost, so that the ledger continues from the memory or from the
	// copies.
	isRestored bool
}

// isCurrent reports whether the shard has a usable ledger.
func (s *shard) isCurrent() bool { return s != nil && s.failure == nil && !s.isOvertaken }

// New returns a Keeper.
func New(config Config) *Keeper {
	return &Keeper{Config: config, published: map[string]digest{}, stale: map[string]bool{}}
}

// shardOf returns the number of the shard that has a Workspace.
func shardOf(namespace, workspace string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(namespace + "/" + workspace)) // never fails
	return int(hash.Sum32() % cost.Shards)
}

// look reads the machines, and accounts the time since the last look.
func (k *Keeper) look(ctx context.Context) error {
	seen, err := k.observe(ctx)
	if err != nil {
		return err
	}
	if k.budgets, err = k.observeBudgets(ctx); err != nil {
		return err
	}
	if err := k.load(ctx, seen); err != nil {
		return err
	}
	now, elapsed := k.Clock.Now(), time.Duration(0)
	if !k.looked.IsZero() {
		elapsed = now.Sub(k.looked) // by the monotonic clock
		rest := elapsed % time.Millisecond
		now, elapsed = now.Add(-rest), elapsed-rest // whole milliseconds: the rest counts in the next look
	}
	for i, s := range k.shards {
		if s.failure != nil {
			continue
		}
		step := cost.Step{At: now, Elapsed: elapsed, Machines: seen.machines[i]}
		if s.restarted {
			step.Elapsed, step.Gap = s.ledger.Gap(now), true
		}
		s.restarted = false
		result := s.ledger.Observe(step)
		s.ledger.Keep(seen.exists)
		s.note(now, result.Changed, result.IsUrgent)
	}
	k.looked = now
	return nil
}

// note records that a shard differs from its stored ConfigMap.
func (s *shard) note(now time.Time, changed, urgent bool) {
	if changed && s.changed.IsZero() {
		s.changed = now
	}
	s.isUrgent = s.isUrgent || urgent
}

// observeBudgets reads the valid budgets of all namespaces. The conditions of Workspaces report invalid ones.
func (k *Keeper) observeBudgets(ctx context.Context) (map[string]cost.Budget, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := k.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	out := map[string]cost.Budget{}
	for i := range list.Items {
		if budget, err := cost.BudgetOf(list.Items[i].Annotations); err == nil && budget != nil {
			out[list.Items[i].Name] = *budget
		}
	}
	return out, nil
}

// observed is the result of a look.
type observed struct {
	machines [cost.Shards][]cost.Machine
	// workspaces has the names of the existing Workspaces.
	workspaces map[cost.Name]bool
}

func (o *observed) exists(name cost.Name) bool { return o.workspaces[name] }

// observe reads all machines and Workspaces.
func (k *Keeper) observe(ctx context.Context) (*observed, error) {
	costs, err := k.MachineCosts.MachineCosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the machines: %w", err)
	}
	list := &v1beta1.WorkspaceList{}
	if err := k.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Workspaces: %w", err)
	}
	workspaces := make(map[types.UID]*v1beta1.Workspace, len(list.Items))
	names := make(map[cost.Name]bool, len(list.Items))
	for i := range list.Items {
		ws := &list.Items[i]
		workspaces[ws.UID] = ws
		names[cost.Name{Namespace: ws.Namespace, Workspace: ws.Name}] = true
	}
	out := &observed{workspaces: names}
	for i := range costs {
		bill := &costs[i]
		if !bill.Launched || bill.UID == "" {
			continue
		}
		at := shardOf(bill.Owner.Namespace, bill.Owner.Name)
		out.machines[at] = append(out.machines[at], k.machine(bill, workspaces[bill.Owner.UID]))
	}
	return out, nil
}
