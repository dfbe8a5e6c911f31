// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/planning"
)

const (
	// atOnce bounds the simultaneous reads of a set's engines, and askLimit bounds the time for all reads. An engine
	// that is out of reach counts as silent.
	atOnce   = 8
	askLimit = 5 * time.Second
	// keyLife is how long an API key is used before it is read again.
	keyLife = 2 * time.Minute
	// unreadyGrace is how long a replica that has answered before still counts as possibly busy after it becomes
	// unready.
	unreadyGrace = 2 * time.Minute
)

// observed is the result of a look.
type observed struct {
	at      time.Time
	signals autoscale.Signals
	// silent lists the replicas without signals, by name, and the problem of each.
	silent []silence
}

// silence is a replica without signals. problem contains no changing figures, because it is part of a condition.
type silence struct{ replica, problem string }

// asked is one replica in a look.
type asked struct {
	ws      *v1beta1.Workspace
	signals engineprobe.Signals
	at      time.Time
	problem string
}

// observe reads the set's replicas, and the load of the answering ones.
func (r *Reconciler) observe(ctx context.Context, set *v1beta1.InferenceSet, m *memory, now time.Time) (*observed, error) {
	children, err := r.children(ctx, set)
	if err != nil {
		return nil, err
	}
	out := &observed{at: now}
	var answering []*asked
	if !equality.Semantic.DeepEqual(m.price.template, set.Spec.Template) { // another price may lift the cap
		m.price = price{template: *set.Spec.Template.DeepCopy()}
	}
	hourly := 0.0
	for _, ws := range children {
		m.learn(ws.UID, startUpOf(ws))
		hourly = max(hourly, priceOf(ws))
		m.price.isPlanned = m.price.isPlanned || ws.Status.Plan != nil
		switch condition := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionInferenceReady); {
		case condition == nil || !ws.DeletionTimestamp.IsZero():
		case condition.Status == metav1.ConditionTrue:
			answering = append(answering, &asked{ws: ws})
		case startUpOf(ws) > 0 && now.Sub(condition.LastTransitionTime.Time) < unreadyGrace:
			answering = append(answering, &asked{ws: ws, problem: "is not ready"})
		}
	}
	if hourly > 0 {
		m.price.hourly = hourly
	}
	r.ask(ctx, answering, m)
	if ctx.Err() != nil {
		return nil, ctx.Err() // this pass is over, not the engines' fault
	}
	m.digest(answering, out)
	r.Loads.note(client.ObjectKeyFromObject(set), answering, now)
	out.signals.ReplicaPrice, out.signals.IsPlanned = m.price.hourly, m.price.isPlanned
	for _, each := range m.startUps {
		out.signals.StartUps = append(out.signals.StartUps, each.took)
	}
	return out, nil
}

// children returns the Workspaces of a set, sorted by name.
func (r *Reconciler) children(ctx context.Context, set *v1beta1.InferenceSet) ([]*v1beta1.Workspace, error) {
	list := &v1beta1.WorkspaceList{}
	err := r.Client.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabels{v1beta1.LabelInferenceSet: set.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the workspaces: %w", err)
	}
	var out []*v1beta1.Workspace
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], set) {
			out = append(out, &list.Items[i])
		}
	}
	slices.SortFunc(out, func(a, b *v1beta1.Workspace) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// startUpOf returns the time from a replica's creation to its first answer; 0 if it has not answered.
func startUpOf(ws *v1beta1.Workspace) time.Duration {
	stages := ws.Status.Startup
	i := slices.IndexFunc(stages, func(s v1beta1.StartupStage) bool { return s.Stage == v1beta1.StageReady && s.EndTime != nil })
	if i < 0 {
		return 0
	}
	return max(stages[i].EndTime.Sub(stages[0].StartTime.Time), time.Second)
}

// priceOf returns the price of a replica's plan, in USD per hour; 0 if it is unknown.
func priceOf(ws *v1beta1.Workspace) float64 {
	if ws.Status.Plan == nil {
		return 0
	}
	price, err := strconv.ParseFloat(ws.Status.Plan.HourlyPrice, 64)
	if err != nil { // it is empty
		return 0
	}
	return price
}

// ask reads the load of replicas, a few at the same time.
func (r *Reconciler) ask(ctx context.Context, replicas []*asked, m *memory) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	for _, each := range replicas {
		if each.problem != "" {
			continue
		}
		key, problem := r.keyOf(ctx, each.ws, m)
		if problem != "" {
			each.problem = problem
			continue
		}
		group.Go(func() error {
			each.problem = r.askOne(ctx, each, key)
			return nil
		})
	}
	_ = group.Wait() // each replica records its own problem
	for _, each := range replicas {
		r.Metrics.scraped(each.problem == "")
		if each.problem != "" {
			clear(m.keys) // the keys may have changed
		}
	}
}

// keyOf returns the API key of a replica's engine. It caches the key, because each read is a request to the API server.
func (r *Reconciler) keyOf(ctx context.Context, ws *v1beta1.Workspace, m *memory) (key, problem string) {
	name := ws.Inference.APIKeySecretName()
	if name == "" {
		return "", ""
	}
	now := r.Clock.Now()
	found, ok := m.keys[name]
	if !ok || now.Sub(found.at) >= keyLife {
		value, err := planning.APIKey(ctx, r.Live, ws)
		found = apiKey{value: value, at: now}
		if err != nil {
			found.problem = "needs the key in Secret " + name + ", which cannot be read"
		}
		m.keys[name] = found
	}
	return found.value, found.problem
}

// askOne reads the load of one replica. It returns a problem, or an empty string.
func (r *Reconciler) askOne(ctx context.Context, of *asked, key string) string {
	if of.ws.Status.Plan == nil || of.ws.Status.Plan.Engine == "" {
		return "runs a pod template, whose engine is unknown"
	}
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: of.ws.Namespace, Name: of.ws.Name + "-0"}, pod)
	if err != nil || pod.Status.PodIP == "" || pod.Labels[v1beta1.LabelWorkspace] != of.ws.Name {
		return "has no pod with an address"
	}
	at := engineprobe.Endpoint{Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(v1beta1.EnginePort)), Key: key}
	of.signals, err = r.Engines.Signals(ctx, of.ws.Status.Plan.Engine, at)
	of.at = r.Clock.Now()
	if err == nil && r.Speeds != nil {
		r.Speeds.Note(of.ws, pod.UID, of.at, &of.signals.Speed)
	}
	return problemOf(err)
}

// problemOf describes an error without addresses and times.
func problemOf(err error) string {
	if err == nil {
		return ""
	}
	if status, ok := errors.AsType[*engineprobe.StatusError](err); ok {
		return fmt.Sprintf("answers %s with status %d", status.Path, status.Code)
	}
	if errors.Is(err, engineprobe.ErrMalformed) {
		return "has metrics without the expected figures"
	}
	return fmt.Sprintf("does not answer on port %d", v1beta1.EnginePort)
}
