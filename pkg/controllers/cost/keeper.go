// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost keeps the ledger of machine time in the cluster: it watches machines and Workspaces, reads the engines'
// counters of tokens, and stores the books in ConfigMaps of the controller's namespace, with a copy for each namespace
// that has any.
//
// It decides when to look and when to write. pkg/cost decides what is booked. It must not buy or delete anything.
package cost

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// Bills returns the bills of all machines from caches.
type Bills interface {
	Bills(ctx context.Context) ([]capacity.Bill, error)
}

// Engines reads the counters of running engines.
type Engines interface {
	Tokens(ctx context.Context, engine string, at engineprobe.Endpoint) (engineprobe.Tokens, error)
}

// Config of a Keeper.
type Config struct {
	// Client reads from caches and writes, Live reads from the API server.
	Client client.Client
	Live   client.Reader
	Bills  Bills
	// Engines is nil if tokens are not counted.
	Engines Engines
	Clock   clock.PassiveClock
	// Namespace of the books, and Name that theirs begin with.
	Namespace, Name string
	// Interval between writes of the same ConfigMap. An end of a machine is written sooner.
	Interval time.Duration
	// Labels of Workspaces to group spending by.
	Labels []string
	// Publish writes a copy for each namespace into it.
	Publish bool
	// PriceSource says where prices come from.
	PriceSource string
}

// Keeper keeps the books. It is a Reconciler with one key for machines and one for tokens.
type Keeper struct {
	Config

	mu     sync.Mutex
	shards [cost.Shards]*shard
	// looked is when the machines were last looked at; zero before the first look of this process.
	looked time.Time
	// published are the last copies by namespace, or those that were refused, and stale those that may differ from the books.
	published map[string]digest
	stale     map[string]bool
	// turn is the engine to begin with next.
	turn int
	// month is what metrics show; nil before the first look.
	month atomic.Pointer[month]
}

// shard is one ConfigMap of the books.
type shard struct {
	name   string
	ledger *cost.Ledger
	// version of the stored ConfigMap; empty if there is none.
	version string
	// written is when it was last written, changed when it first differed since then, and isUrgent whether that is an end.
	written, changed time.Time
	isUrgent         bool
	// restarted is set until the first look at a ledger of another process.
	restarted bool
	// failure is why it cannot be read. Then it is left alone.
	failure error
}

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

// load reads the books from the API server: the former leader may just have written them.
func (k *Keeper) load(ctx context.Context) error {
	for i := range k.shards {
		if k.shards[i] != nil {
			continue
		}
		read, err := k.read(ctx, k.Name+"-"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		if read.failure != nil {
			log.FromContext(ctx).Error(read.failure, "cannot read a part of the cost ledger, and leaves it alone",
				"namespace", k.Namespace, "configMap", read.name)
		}
		if read.written.IsZero() { // the cluster itself remembers everything but ends
			read.written = k.Clock.Now()
		}
		k.shards[i] = read
		for _, namespace := range read.ledger.Namespaces() { // a former process may have ended before it wrote the copies
			k.stale[namespace] = true
		}
	}
	return nil
}

// look books the time since the former look.
func (k *Keeper) look(ctx context.Context) error {
	if err := k.load(ctx); err != nil {
		return err
	}
	seen, err := k.observe(ctx)
	if err != nil {
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

// note remembers that a shard differs from what is stored.
func (s *shard) note(now time.Time, changed, urgent bool) {
	if changed && s.changed.IsZero() {
		s.changed = now
	}
	s.isUrgent = s.isUrgent || urgent
}

// observed is what a look finds.
type observed struct {
	machines [cost.Shards][]cost.Machine
	exists   func(cost.Name) bool
}

// observe reads all machines and Workspaces.
func (k *Keeper) observe(ctx context.Context) (*observed, error) {
	bills, err := k.Bills.Bills(ctx)
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
	out := &observed{exists: func(name cost.Name) bool { return names[name] }}
	for i := range bills {
		bill := &bills[i]
		if !bill.Launched || bill.UID == "" {
			continue
		}
		at := shardOf(bill.Owner.Namespace, bill.Owner.Name)
		out.machines[at] = append(out.machines[at], k.machine(bill, workspaces[bill.Owner.UID]))
	}
	return out, nil
}
