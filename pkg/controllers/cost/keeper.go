// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost keeps the ledger of machine time in the cluster: it watches machines and Workspaces, reads the engines'
// token counters, and stores the ledger in ConfigMaps of the controller's namespace, with a copy for each namespace in
// it.
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

// Speeds takes how fast an engine in a pod of a Workspace serves.
type Speeds interface {
	Note(ws *v1beta1.Workspace, pod types.UID, at time.Time, read *engineprobe.Speed)
}

// Config of a Keeper.
type Config struct {
	// Client reads from caches and writes, Live reads from the API server.
	Client       client.Client
	Live         client.Reader
	MachineCosts MachineCosts
	// Engines is nil if tokens are not counted.
	Engines Engines
	// Speeds is nil if nobody learns from the engines.
	Speeds Speeds
	Clock  clock.PassiveClock
	// Namespace of the ledger, and the prefix of its names.
	Namespace, Name string
	// Interval between writes of the same ConfigMap. An end of a machine is written sooner.
	Interval time.Duration
	// Labels of Workspaces to group spending by.
	Labels []string
	// Publish writes a copy for each namespace into it.
	Publish bool
	// PriceSource names the source of prices.
	PriceSource string
}

// Keeper keeps the ledger. It is a Reconciler with one key for machines and one for tokens.
type Keeper struct {
	Config

	mu     sync.Mutex
	shards [cost.Shards]*shard
	// looked is when the machines were last looked at; zero before the first look of this process.
	looked time.Time
	// published are the last copies by namespace, or the refused ones, and stale those that may differ from the ledger.
	published map[string]digest
	stale     map[string]bool
	// budgets are those of namespaces at the last look.
	budgets map[string]cost.Budget
	// turn is the engine to begin with next.
	turn int
	// month is the content of the metrics; nil before the first look.
	month atomic.Pointer[month]
	// isFailing: the last look failed, so the snapshot lacks what has been spent since.
	isFailing atomic.Bool
}

// shard is one ConfigMap of the ledger.
type shard struct {
	name   string
	ledger *cost.Ledger
	// version of the stored ConfigMap; empty if there is none.
	version string
	// written is the time of the last write, changed that of the first difference since then, and isUrgent whether the
	// difference is an end.
	written, changed time.Time
	isUrgent         bool
	// restarted is set until the first look at a ledger of another process.
	restarted bool
	// failure is why it cannot be read. Then it is not changed, and is read again a while after tried.
	failure error
	tried   time.Time
	// isOvertaken: the ConfigMap is not the one that this process has written. It is read again.
	isOvertaken bool
	// isRestored: the ConfigMap was gone or damaged, and the ledger continues from what else was known.
	isRestored bool
}

// isCurrent reports whether the ledger of a shard can be used as it is.
func (s *shard) isCurrent() bool { return s != nil && s.failure == nil && !s.isOvertaken }

// New returns a Keeper.
func New(config Config) *Keeper {
	return &Keeper{Config: config, published: map[string]digest{}, stale: map[string]bool{}}
}

// shardOf is the number of the shard of a Workspace.
func shardOf(namespace, workspace string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(namespace + "/" + workspace)) // never fails
	return int(hash.Sum32() % cost.Shards)
}

// look records the time since the last look.
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
		now, elapsed = now.Add(-rest), elapsed-rest // the ledger has whole milliseconds, so the rest is for the next look
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
		s.note(now, result.Changed, result.Ended)
	}
	k.looked = now
	return nil
}

// note records that a shard differs from its stored copy.
func (s *shard) note(now time.Time, changed, urgent bool) {
	if changed && s.changed.IsZero() {
		s.changed = now
	}
	s.isUrgent = s.isUrgent || urgent
}

// observeBudgets reads the valid budgets of all namespaces. Of an invalid one, the conditions of Workspaces say so.
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
	// workspaces are the names of those that exist.
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
