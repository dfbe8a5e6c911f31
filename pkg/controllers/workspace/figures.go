// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/figures"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/request"
)

// EngineReader asks an engine that answers what it has become.
type EngineReader interface {
	Read(ctx context.Context, engine string, at figures.Endpoint) (figures.Figures, error)
}

// engineMessageLimit is that of the schema.
const engineMessageLimit = 512

// figuresDelay is how long an engine answers before it is asked for its figures: nobody waits for them, and of
// models that come up together the last is to be told of first.
const figuresDelay = 10 * time.Second

// mostAsking is how many engines are asked at once, half of the chart's workers: one that does not answer holds up the
// worker that asks it, and the others are for what somebody waits for.
const mostAsking = 16

// awaitFigures has another pass ask the engine once it is told that the model answers: our own status is no
// event.
func (r *Reconciler) awaitFigures(s *scope) {
	if r.Engines != nil && isTrue(s.ws.Status.Conditions, v1beta1.ConditionReady) && !isTrue(s.before.Conditions, v1beta1.ConditionReady) {
		s.lookAgain(figuresDelay)
	}
}

// observeEngine asks the engine for its own figures once for each revision, some time after the status has told
// that the model answers. What fails is not tried again.
func (r *Reconciler) observeEngine(ctx context.Context, s *scope) error {
	leader := s.leader()
	ready := find(s.before.Conditions, v1beta1.ConditionReady)
	isTold := ready != nil && ready.Status == metav1.ConditionTrue
	if r.Engines == nil || leader == nil || !isTold || !s.lacksFigures() {
		return nil
	}
	// The clock of a controller that led before may be ahead.
	if since := r.Clock.Since(ready.LastTransitionTime.Time); since >= 0 && since < figuresDelay {
		s.lookAgain(figuresDelay - since)
		return nil
	}
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	default:
		s.lookAgain(figuresDelay / 2)
		return nil
	}
	at := figures.Endpoint{Address: net.JoinHostPort(leader.Status.PodIP, strconv.Itoa(v1beta1.EnginePort))}
	var said figures.Figures
	var err error
	if at.Key, err = r.apiKey(ctx, s.ws); err == nil {
		said, err = r.Engines.Read(ctx, s.running().Plan.Engine, at)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("asking the engine: %w", ctx.Err()) // this pass is over, not the engine's fault
	}
	s.engine = engineStatus(s.running().Name, &s.running().Plan, said)
	if err != nil {
		s.engine.Message = request.Shorten(err.Error(), engineMessageLimit)
	}
	return nil
}

// lacksFigures says whether the engine of the accepted revision has not been asked.
func (s *scope) lacksFigures() bool {
	known, runs := s.ws.Status.Engine, s.running()
	return runs != nil && runs.Plan.Engine != "" && s.isCurrent() && (known == nil || known.Revision != runs.Name)
}

// leader is the pod that answers, once it is ready; nil before.
func (s *scope) leader() *corev1.Pod {
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.Name == s.ws.Name+"-0" && pod.Status.PodIP != "" && isPodReady(pod) {
			return pod
		}
	}
	return nil
}

func isPodReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// engineStatus puts an engine's figures beside those of its plan.
func engineStatus(revision string, plan *planner.Plan, said figures.Figures) *v1beta1.EngineStatus {
	out := &v1beta1.EngineStatus{Revision: revision}
	if said.KVCacheTokens > 0 {
		out.KVCacheTokens = figure(float64(plan.KVCacheTokens), float64(said.KVCacheTokens), 0)
	}
	if said.WeightBytes > 0 {
		planned := 0.0
		if plan.Artifact != nil {
			planned = gibibytes(plan.Artifact.LoadedBytes())
		}
		out.Weights = figure(planned, gibibytes(said.WeightBytes), 2)
	}
	return out
}

func gibibytes(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// figure compares two numbers; a plan of zero counted on nothing.
func figure(planned, actual float64, digits int) *v1beta1.EngineFigure {
	word := func(number float64) string { return strconv.FormatFloat(number, 'f', digits, 64) }
	out := &v1beta1.EngineFigure{Actual: word(actual)}
	if planned > 0 {
		out.Planned, out.Difference = word(planned), fmt.Sprintf("%+.1f%%", (actual-planned)/planned*100)
	}
	return out
}
