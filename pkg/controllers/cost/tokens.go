// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/planning"
)

const (
	// atOnce bounds the simultaneous reads of engines.
	atOnce = 8
	// countLimit bounds the time of a round. The next round begins with the engines that this round did not reach.
	countLimit = 40 * time.Second
)

// asked is an engine to read, with its counters.
type asked struct {
	ws      *v1beta1.Workspace
	at      engineprobe.Endpoint
	process string
	pod     types.UID
	tokens  engineprobe.Tokens
	ok      bool
}

// count reads the counters of all engines and records the tokens. If an engine does not answer, the next round includes
// its tokens, because the counters are cumulative.
func (k *Keeper) count(ctx context.Context) error {
	engines, err := k.serving(ctx)
	if err != nil || len(engines) == 0 {
		return err
	}
	engines = append(engines[k.turn%len(engines):], engines[:k.turn%len(engines)]...)
	asking, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	reached := 0
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	for _, e := range engines {
		if asking.Err() != nil {
			break
		}
		reached++
		group.Go(func() error {
			if err := k.ask(asking, e); err != nil {
				log.FromContext(ctx).V(1).Info("cannot count the tokens of an engine",
					"namespace", e.ws.Namespace, "workspace", e.ws.Name, "reason", err.Error())
			}
			return nil
		})
	}
	_ = group.Wait() // ask logs the failure of each engine
	k.turn += reached
	return k.enter(ctx, engines)
}

// ask reads the counters of one engine.
func (k *Keeper) ask(ctx context.Context, e *asked) error {
	var err error
	if e.at.Key, err = planning.APIKey(ctx, k.Live, e.ws); err != nil {
		return err
	}
	if e.tokens, err = k.Engines.Tokens(ctx, e.ws.Status.Plan.Engine, e.at); err != nil {
		return err
	}
	e.ok = true
	if k.Speeds != nil {
		k.Speeds.Note(e.ws, e.pod, k.Clock.Now(), &e.tokens.Speed)
	}
	return nil
}

// serving returns the engines of all Workspaces whose model answers.
func (k *Keeper) serving(ctx context.Context) ([]*asked, error) {
	list := &v1beta1.WorkspaceList{}
	if err := k.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing Workspaces: %w", err)
	}
	var out []*asked
	for i := range list.Items {
		ws := &list.Items[i]
		if !isReady(ws) || ws.Status.Plan == nil || ws.Status.Plan.Engine == "" {
			continue
		}
		pod := &corev1.Pod{}
		err := k.Client.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: ws.Name + "-0"}, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading the pod of Workspace %s/%s: %w", ws.Namespace, ws.Name, err)
		}
		if err != nil || pod.Status.PodIP == "" || pod.Labels[v1beta1.LabelWorkspace] != ws.Name {
			continue
		}
		out = append(out, &asked{
			ws: ws, at: engineprobe.Endpoint{Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(v1beta1.EnginePort))},
			process: processOf(pod), pod: pod.UID,
		})
	}
	slices.SortFunc(out, func(a, b *asked) int { return strings.Compare(string(a.ws.UID), string(b.ws.UID)) })
	return out, nil
}

// processOf identifies the process of an engine: the pod, and the restarts of the engine's container. That container
// has the name of the Workspace, or is the first container of a user's own pod. Restarts of other containers do not
// reset the engine's counters.
func processOf(pod *corev1.Pod) string {
	engine := pod.Labels[v1beta1.LabelWorkspace]
	isEngine := func(c corev1.Container) bool { return c.Name == engine }
	if of := pod.Spec.Containers; len(of) > 0 && !slices.ContainsFunc(of, isEngine) {
		engine = of[0].Name
	}
	restarts := int32(0)
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == engine {
			restarts = status.RestartCount
		}
	}
	return string(pod.UID) + "/" + strconv.Itoa(int(restarts))
}

// enter records each engine's tokens in the ledger, under one paid machine of its Workspace.
func (k *Keeper) enter(ctx context.Context, engines []*asked) error {
	costs, err := k.MachineCosts.MachineCosts(ctx)
	if err != nil {
		return fmt.Errorf("reading the machines: %w", err)
	}
	paid := map[types.UID]*capacity.MachineCost{}
	for i := range costs {
		if bill := &costs[i]; bill.Launched && paid[bill.Owner.UID] == nil {
			paid[bill.Owner.UID] = bill
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.looked.IsZero() { // the first round of a process may come before its first look
		if err := k.look(ctx); err != nil {
			return err
		}
	}
	now := k.Clock.Now()
	for _, e := range engines {
		s := k.shards[shardOf(e.ws.Namespace, e.ws.Name)]
		bill := paid[e.ws.UID]
		if !e.ok || !s.isCurrent() || bill == nil { // existing nodes have no cost here
			continue
		}
		changed := s.ledger.Count(now, cost.Engine{
			Name: cost.Name{Namespace: e.ws.Namespace, Workspace: e.ws.Name}, Key: k.key(bill, e.ws), Plan: planned(e.ws),
			Counters: []cost.Counters{{Incarnation: e.process + "/" + e.tokens.Started, Prompt: e.tokens.Prompt, Output: e.tokens.Output}},
		})
		s.note(now, changed, false)
	}
	k.snapshot()
	return nil
}

// planned returns the planned price of a million output tokens, in USD.
func planned(ws *v1beta1.Workspace) string {
	if p := ws.Status.Plan.Performance; p != nil {
		return p.PricePerMillionOutputTokens
	}
	return ""
}
