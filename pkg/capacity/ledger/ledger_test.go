// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// source has the objects of an API server, and the objects of a lagging cache.
type source struct {
	mu           sync.Mutex
	live, cached []capacity.MachineCost
	err          error
	lists        int
}

func (b *source) MachineCosts(context.Context) ([]capacity.MachineCost, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cached, b.err
}

func (b *source) LiveMachineCosts(context.Context) ([]capacity.MachineCost, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists++
	return b.live, b.err
}

func bill(namespace, name, machine string, price float64) capacity.MachineCost {
	return capacity.MachineCost{
		Owner:   capacity.Owner{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)},
		Machine: machine, InstanceType: "big", HourlyPrice: price,
	}
}

// TestReserve reserves one machine at $4.00 per hour in addition to the existing ones.
func TestReserve(t *testing.T) {
	tests := []struct {
		reason   string
		ceilings ledger.Ceilings
		held     []capacity.MachineCost
		asked    []capacity.MachineCost
		want     string
		room     float64
	}{
		{reason: "no ceiling", held: []capacity.MachineCost{bill("a", "x", "m", 1e9)}, asked: []capacity.MachineCost{bill("a", "y", "n", 4)}},
		{
			reason: "exactly the ceiling", ceilings: ledger.Ceilings{Cluster: 0.3},
			held: []capacity.MachineCost{bill("a", "x", "m", 0.1)}, asked: []capacity.MachineCost{bill("a", "y", "n", 0.2)},
		},
		{
			reason: "one Workspace is too dear for itself", ceilings: ledger.Ceilings{Workspace: 7},
			asked: []capacity.MachineCost{bill("a", "y", "n", 4), bill("a", "y", "o", 4)}, room: 7,
			want: "the administrator's ceiling spending.perWorkspace is $7.00/h; big ($8.00/h) would exceed it by $1.00/h: " +
				"choose a cheaper machine type, or have the administrator raise the ceiling",
		},
		{
			reason: "a namespace names its Workspaces, most first", ceilings: ledger.Ceilings{Namespace: 10, Cluster: 100},
			held: []capacity.MachineCost{
				bill("a", "x", "m", 3), bill("a", "z", "o", 3.5), bill("b", "q", "p", 90), bill("a", "v", "r", 0.5), bill("a", "w", "s", 0.25),
			},
			asked: []capacity.MachineCost{bill("a", "y", "n", 4)}, room: 2.75,
			want: "the administrator's ceiling spending.perNamespace is $10.00/h for namespace a; big ($4.00/h) would exceed it by $1.25/h, " +
				"because $7.25/h is already in use by z ($3.50/h), x ($3.00/h), v ($0.50/h), 1 more: the controller retries when machines are " +
				"released; suspend or delete unused Workspaces, choose a cheaper machine type, or have the administrator raise the ceiling",
		},
		{
			reason: "what other namespaces spend is not in the message", ceilings: ledger.Ceilings{Cluster: 9},
			held:  []capacity.MachineCost{bill("b", "secret", "m", 5), bill("b", "other", "o", 1)},
			asked: []capacity.MachineCost{bill("a", "y", "n", 4)}, room: 3,
			want: "the administrator's ceiling spending.cluster is $9.00/h for all namespaces together, and too little is left " +
				"for big, which costs $4.00/h: the controller retries when machines of any namespace are released; " +
				"choose a cheaper machine type, or have the administrator raise the ceiling",
		},
		{
			reason: "more than the ceiling, whatever others spend", ceilings: ledger.Ceilings{Cluster: 3},
			held:  []capacity.MachineCost{bill("b", "secret", "m", 2)},
			asked: []capacity.MachineCost{bill("a", "y", "n", 4)}, room: 1,
			want: "the administrator's ceiling spending.cluster is $3.00/h for all namespaces together, too little for big, which costs $4.00/h: " +
				"choose a cheaper machine type, or have the administrator raise the ceiling",
		},
		{
			reason: "a machine that is there is not asked for again, however low the ceiling", ceilings: ledger.Ceilings{Cluster: 1},
			held: []capacity.MachineCost{bill("a", "y", "n", 4)}, asked: []capacity.MachineCost{bill("a", "y", "n", 4)},
		},
		{
			reason: "a price that nobody knows", ceilings: ledger.Ceilings{Cluster: 9}, asked: []capacity.MachineCost{bill("a", "y", "n", -1)},
			want: "the administrator's ceiling spending.cluster is $9.00/h for all namespaces together, and no price is known for big: " +
				"choose another machine type, or have the administrator add a price",
		},
		{
			reason: "machines without a known price count as nothing", ceilings: ledger.Ceilings{Cluster: 4},
			held: []capacity.MachineCost{bill("a", "x", "m", -1)}, asked: []capacity.MachineCost{bill("a", "y", "n", 4)},
		},
		{
			reason: "a reservation costs nothing more, even over a ceiling that was lowered", ceilings: ledger.Ceilings{Cluster: 4},
			held: []capacity.MachineCost{bill("a", "x", "m", 4)}, asked: []capacity.MachineCost{bill("a", "y", "n", 0)},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			l := ledger.New(&source{live: test.held, cached: test.held})
			err := l.Reserve(t.Context(), start, test.asked, test.ceilings)
			over, isOver := errors.AsType[*ledger.OverError](err)
			if isOver != (test.want != "") || err != nil && err.Error() != test.want {
				t.Fatalf("got  %v\nwant %s", err, test.want)
			}
			if isOver && over.Room != test.room {
				t.Errorf("room %v, want %v", over.Room, test.room)
			}
		})
	}
}

// TestGrantsAreBridged: a grant counts until its machine appears, or until the API server confirms its absence.
func TestGrantsAreBridged(t *testing.T) {
	b := &source{}
	l, five := ledger.New(b), ledger.Ceilings{Cluster: 5}
	reserve := func(after time.Duration, asked capacity.MachineCost) bool {
		return l.Reserve(t.Context(), start.Add(after), []capacity.MachineCost{asked}, five) == nil
	}
	if !reserve(0, bill("a", "x", "m", 4)) || reserve(time.Second, bill("a", "y", "n", 4)) {
		t.Fatal("the first is to be granted, and the second not")
	}
	if !reserve(2*time.Second, bill("a", "x", "m", 5)) {
		t.Error("the same machine of another plan is not granted")
	}
	if lists := b.lists; lists != 1 {
		t.Errorf("the API server was asked %d times, want once at the start", lists)
	}
	if !reserve(2*time.Minute, bill("a", "y", "n", 4)) {
		t.Error("a grant whose machine never came counts for ever")
	}
	l.Forget("a/y")
	if !reserve(2*time.Minute, bill("a", "z", "o", 4)) {
		t.Error("a grant that was given back counts")
	}
}

// TestLeaderChange: a new leader counts its predecessor's purchases, whatever its cache shows.
func TestLeaderChange(t *testing.T) {
	b := &source{live: []capacity.MachineCost{bill("a", "x", "m", 4)}}
	l, five := ledger.New(b), ledger.Ceilings{Cluster: 5}
	over, ok := errors.AsType[*ledger.OverError](l.Reserve(t.Context(), start, []capacity.MachineCost{bill("a", "y", "n", 4)}, five))
	if !ok || over.Used != 4 {
		t.Fatalf("got %+v, want to be over with 4 used", over)
	}
	b.err = errors.New("away")
	fresh := ledger.New(b)
	if err := fresh.Reserve(t.Context(), start, []capacity.MachineCost{bill("a", "y", "n", 4)}, five); !errors.Is(err, b.err) {
		t.Errorf("granted on source that nobody could read: %v", err)
	}
}

// TestNeverOver runs random sequences: many Workspaces reserve, buy, fail and release concurrently in any order, while
// caches lag and processes die. The objects in the API server never exceed a ceiling.
func TestNeverOver(t *testing.T) {
	for seed := range uint64(2000) {
		if err := story(rand.New(rand.NewPCG(seed, 7))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func storyCeilings() ledger.Ceilings {
	return ledger.Ceilings{Workspace: 8, Namespace: 12, Cluster: 20}
}

func story(random *rand.Rand) error {
	b := &source{}
	l := ledger.New(b)
	now := start
	for step := range 60 {
		now = now.Add(time.Duration(random.IntN(40)) * time.Second)
		switch random.IntN(8) {
		case 0: // the process dies
			l = ledger.New(b)
		case 1: // machines are gone
			if len(b.live) > 0 {
				b.live = b.live[:random.IntN(len(b.live))]
			}
		case 2: // the cache catches up
			b.cached = append([]capacity.MachineCost(nil), b.live...)
		default:
			buy(random, l, b, now, step)
		}
		if err := b.check(storyCeilings()); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// buy lets several Workspaces reserve at once, and creates some of the granted machines.
func buy(random *rand.Rand, l *ledger.Ledger, b *source, now time.Time, step int) {
	var group sync.WaitGroup
	for asker := range 1 + random.IntN(3) {
		namespace, name := string(rune('a'+random.IntN(3))), string(rune('x'+random.IntN(3)))
		var asked []capacity.MachineCost
		for ordinal := range 1 + random.IntN(2) {
			asked = append(asked, bill(namespace, name, fmt.Sprintf("%d-%d-%d", step, asker, ordinal), float64(1+random.IntN(5))))
		}
		created := random.IntN(len(asked) + 1)
		group.Go(func() {
			if l.Reserve(context.Background(), now, asked, storyCeilings()) != nil {
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, made := range asked[:created] {
				if !b.has(made.Machine) {
					b.live = append(b.live, made)
				}
			}
		})
	}
	group.Wait()
}

func (b *source) has(machine string) bool {
	for _, known := range b.live {
		if known.Machine == machine {
			return true
		}
	}
	return false
}

func (b *source) check(ceilings ledger.Ceilings) error {
	workspaces, namespaces, all := map[types.UID]float64{}, map[string]float64{}, 0.0
	for _, known := range b.live {
		workspaces[known.Owner.UID] += known.HourlyPrice
		namespaces[known.Owner.Namespace] += known.HourlyPrice
		all += known.HourlyPrice
	}
	for uid, sum := range workspaces {
		if sum > ceilings.Workspace {
			return fmt.Errorf("workspace %s costs %v", uid, sum)
		}
	}
	for namespace, sum := range namespaces {
		if sum > ceilings.Namespace {
			return fmt.Errorf("namespace %s costs %v", namespace, sum)
		}
	}
	if all > ceilings.Cluster {
		return fmt.Errorf("all machines cost %v", all)
	}
	return nil
}

// TestNamespaceOwnCeiling: a namespace's own ceiling takes the place of the ceiling for all namespaces, and the
// refusal names it.
func TestNamespaceOwnCeiling(t *testing.T) {
	own := ledger.Ceilings{Workspace: 100, Namespace: 5, Cluster: 500, IsNamespaceOwn: true}
	asked := []capacity.MachineCost{bill("team-a", "chat", "machine-1", 8)}
	l := ledger.New(&source{})
	err := l.Reserve(t.Context(), time.Time{}, asked, own)
	over, isOver := errors.AsType[*ledger.OverError](err)
	if !isOver {
		t.Fatalf("got %v, want that the namespace's own ceiling of 5 is passed", err)
	}
	if want := "the administrator's ceiling modelberth.dev/spending-ceiling is $5.00/h (annotation of namespace team-a)"; !strings.HasPrefix(over.Error(), want) {
		t.Errorf("got %q, want it to begin with %q", over.Error(), want)
	}
	if own.Namespace = 9; l.Reserve(t.Context(), time.Time{}, asked, own) != nil {
		t.Error("8 are refused under a ceiling of 9")
	}
}
