// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/evidence/speed"
	"github.com/modelberth/modelberth/pkg/planning"
)

// EngineProbe reads the figures of a running engine.
type EngineProbe interface {
	Read(ctx context.Context, engine string, at engineprobe.Endpoint) (engineprobe.Result, error)
}

// Speeds returns how fast the engine in a pod of a Workspace serves; false if that is not yet known.
type Speeds interface {
	Of(ws, pod types.UID) (v1beta1.EngineSpeed, bool)
}

// probeDelay is the time from an engine's first answer to its probe. No user waits for the figures.
const probeDelay = 30 * time.Second

// mostProbes bounds concurrent probes to half of the chart's workers: a probe of a silent engine blocks its worker.
const mostProbes = 16

// awaitProbe requests another pass for the probe of the engine once the status reports an answering model,
// because this controller's own writes trigger no pass.
func (r *Reconciler) awaitProbe(s *scope.Scope) {
	isReady := meta.IsStatusConditionTrue(s.Workspace.Status.Conditions, v1beta1.ConditionReady)
	wasReady := meta.IsStatusConditionTrue(s.Before.Conditions, v1beta1.ConditionReady)
	if r.Engines != nil && isReady && !wasReady {
		s.LookAgain(probeDelay)
	}
}

// observeEngine probes the engine once per revision, some time after the model first answers. It does not repeat
// a failed probe.
func (r *Reconciler) observeEngine(ctx context.Context, s *scope.Scope) error {
	leader := s.Leader()
	ready := meta.FindStatusCondition(s.Before.Conditions, v1beta1.ConditionReady)
	isReady := ready != nil && ready.Status == metav1.ConditionTrue
	if r.Engines == nil || leader == nil || !isReady || !lacksFigures(s) {
		return nil
	}
	// The clock of an earlier leader may be ahead.
	if since := r.Clock.Since(ready.LastTransitionTime.Time); since >= 0 && since < probeDelay {
		s.LookAgain(probeDelay - since)
		return nil
	}
	select {
	case r.probes <- struct{}{}:
		defer func() { <-r.probes }()
	default:
		s.LookAgain(probeDelay / 2)
		return nil
	}
	at := engineprobe.Endpoint{Address: net.JoinHostPort(leader.Status.PodIP, strconv.Itoa(v1beta1.EnginePort))}
	var found engineprobe.Result
	var err error
	if at.Key, err = planning.APIKey(ctx, r.Live, s.Workspace); err == nil {
		found, err = r.Engines.Read(ctx, s.Running().Plan.Engine, at)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("probing the engine: %w", ctx.Err()) // this pass is over, not the engine's fault
	}
	s.Engine = &status.Engine{
		Revision: s.Running().Name, Plan: &s.Running().Plan,
		KVCacheTokens: found.KVCacheTokens, WeightBytes: found.WeightBytes, Err: err,
	}
	return nil
}

// observeSpeed takes the speed of the probed engine if the status has none, or has had a different one for a day.
func (r *Reconciler) observeSpeed(_ context.Context, s *scope.Scope) error {
	leader, known, runs := s.Leader(), s.Workspace.Status.Engine, s.Running()
	if r.Speeds == nil || leader == nil || runs == nil || !s.IsCurrent() || known == nil || known.Revision != runs.Name {
		return nil
	}
	if found, ok := r.Speeds.Of(s.Workspace.UID, leader.UID); ok && speed.IsDue(known, &found, r.Clock.Now()) {
		s.Speed = &found
	}
	return nil
}

// lacksFigures reports whether the engine of the pods' revision has not been probed yet.
func lacksFigures(s *scope.Scope) bool {
	known, runs := s.Workspace.Status.Engine, s.Running()
	return runs != nil && runs.Plan.Engine != "" && s.IsCurrent() && (known == nil || known.Revision != runs.Name)
}
