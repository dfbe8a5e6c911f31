// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/model"
)

// start returns when the Workspace of these tests was created.
func start() time.Time { return workspaceObject().CreationTimestamp.Time }

// after returns a time in seconds after start.
func after(seconds int) metav1.Time {
	return metav1.NewTime(start().Add(time.Duration(seconds) * time.Second))
}

// usableAfter returns a machine whose condition Initialized is True since that time.
func usableAfter(seconds int) capacity.Machine {
	return machine(func(m *capacity.Machine) {
		m.Words.Initialized = refusal.Condition{Status: refusal.StatusTrue, Since: after(seconds).Time}
	})
}

// podAfter returns a pod. Its arguments are the seconds until its weights were fetched, its engine ran, and it was
// ready; negative means not yet.
func podAfter(fetched, ran, ready int) corev1.Pod {
	pod := corev1.Pod{}
	pod.Name = "chat-0"
	note := func(kind corev1.PodConditionType, seconds int) {
		if seconds >= 0 {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: after(seconds)})
		}
	}
	note(corev1.PodInitialized, fetched)
	note(corev1.PodReady, ready)
	engine := corev1.ContainerStatus{Name: "chat"}
	if ran >= 0 {
		engine.State.Running = &corev1.ContainerStateRunning{StartedAt: after(ran)}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{engine}
	return pod
}

// stagesOf formats stages as name start-end, in seconds after start.
func stagesOf(stages []v1beta1.StartupStage) string {
	var words []string
	for _, stage := range stages {
		word := fmt.Sprintf("%s %.0f-", stage.Stage, stage.StartTime.Sub(start()).Seconds())
		if stage.EndTime != nil {
			word += fmt.Sprintf("%.0f", stage.EndTime.Sub(start()).Seconds())
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestStartup(t *testing.T) {
	for _, tc := range []struct {
		reason string
		seen   int
		change func(*scope.Scope)
		want   string
	}{
		{"no plan yet", 1, func(*scope.Scope) {}, "Planned 0-"},
		{"planned", 2, func(s *scope.Scope) { s.Revision = accepted(1) }, "Planned 0-2, Machine 2-"},
		{"the machine was usable before anybody looked", 60, func(s *scope.Scope) {
			s.Revision, s.Machines = accepted(1), []capacity.Machine{usableAfter(40)}
			s.Workspace.Status.Startup = []v1beta1.StartupStage{{Stage: "Planned", StartTime: after(0), EndTime: new(after(2))}}
		}, "Planned 0-2, Machine 2-40, Weights 40-"},
		{"all that the cluster noted is seen at once", 60, func(s *scope.Scope) {
			s.Revision, s.Machines, s.StatefulSet = accepted(1), []capacity.Machine{usableAfter(10)}, readySet()
			s.Pods = []corev1.Pod{podAfter(25, 30, 45)}
			s.Workspace.Status.Startup = []v1beta1.StartupStage{{Stage: "Planned", StartTime: after(0), EndTime: new(after(2))}}
		}, "Planned 0-2, Machine 2-10, Weights 10-25, Image 25-30, Engine 30-45, Ready 45-60"},
		{"an image that was there already takes no time", 60, func(s *scope.Scope) {
			s.Revision, s.Machines, s.StatefulSet = accepted(1), []capacity.Machine{usableAfter(0)}, readySet()
			s.Pods = []corev1.Pod{podAfter(25, 25, -1)}
			s.Workspace.Status.Startup = []v1beta1.StartupStage{{Stage: "Planned", StartTime: after(0), EndTime: new(after(2))}}
		}, "Planned 0-2, Machine 2-2, Weights 2-25, Image 25-25, Engine 25-"},
		{"a clock that is ahead of ours ends nothing in the future", 60, func(s *scope.Scope) {
			s.Revision, s.Machines, s.StatefulSet = accepted(1), []capacity.Machine{usableAfter(10)}, readySet()
			s.Pods = []corev1.Pod{podAfter(25, 30, 90)}
			s.Workspace.Status.Startup = []v1beta1.StartupStage{{Stage: "Planned", StartTime: after(0), EndTime: new(after(2))}}
		}, "Planned 0-2, Machine 2-10, Weights 10-25, Image 25-30, Engine 30-60, Ready 60-60"},
		{"a user's own pods fetch no weights", 60, func(s *scope.Scope) {
			s.Workspace.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{}}
			s.Revision, s.Machines, s.StatefulSet = accepted(1), []capacity.Machine{usableAfter(10)}, readySet()
			s.Pods = []corev1.Pod{podAfter(12, 30, -1)}
			s.Workspace.Status.Startup = []v1beta1.StartupStage{{Stage: "Planned", StartTime: after(0), EndTime: new(after(2))}}
		}, "Planned 0-2, Machine 2-10, Image 10-30, Engine 30-"},
		{"what an earlier version wrote stays as it is", 60, func(s *scope.Scope) {
			s.Revision, s.Machines, s.StatefulSet = accepted(1), []capacity.Machine{usableAfter(10)}, readySet()
			s.Pods = []corev1.Pod{podAfter(25, 30, 45)}
			s.Workspace.Status.Startup = []v1beta1.StartupStage{
				{Stage: "Planned", StartTime: after(0), EndTime: new(after(2))},
				{Stage: "Machine", StartTime: after(2), EndTime: new(after(9))},
				{Stage: "Engine", StartTime: after(9), EndTime: new(after(50))},
				{Stage: "Ready", StartTime: after(50), EndTime: new(after(51))},
			}
		}, "Planned 0-2, Machine 2-9, Engine 9-50, Ready 50-51"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := scope.New(workspaceObject())
			tc.change(s)
			s.HasService = s.StatefulSet != nil
			for i := range s.Pods {
				s.Endpoints = append(s.Endpoints, s.Pods[i].UID)
			}
			status, _ := s.Status(nil, after(tc.seen))
			if diff := cmp.Diff(tc.want, stagesOf(status.Startup)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			s.Workspace.Status = status
			again, _ := s.Status(nil, after(tc.seen+100))
			for i := range status.Startup {
				if status.Startup[i].EndTime == nil {
					continue
				}
				if diff := cmp.Diff(status.Startup[i], again.Startup[i]); diff != "" {
					t.Errorf("a stage that had ended changed: -before +after:\n%s", diff)
				}
			}
		})
	}
}

// askedEngine is an EngineProbe that returns said or err, and records its calls.
type askedEngine struct {
	said  engineprobe.Result
	err   error
	asked []string
}

func (e *askedEngine) Read(_ context.Context, engine string, at engineprobe.Endpoint) (engineprobe.Result, error) {
	e.asked = append(e.asked, engine+" "+at.Address)
	return e.said, e.err
}

// answering returns a pass over a Workspace with an answering model. isTold means that the status already reports it.
func answering(isTold bool) *scope.Scope {
	s := scope.New(workspaceObject())
	s.Revision, s.Machines, s.StatefulSet = accepted(1), []capacity.Machine{machine()}, readySet()
	s.StatefulSet.Status.UpdateRevision = "chat-1"
	s.Revision.Plan.KVCacheTokens = 1000
	s.Revision.Plan.Artifact = &model.Artifact{WeightBytes: 2 << 30}
	pod := podReady()
	pod.Status.PodIP, pod.Labels = "10.0.0.7", map[string]string{appsv1.ControllerRevisionHashLabelKey: "chat-1"}
	s.Pods = []corev1.Pod{pod}
	if isTold {
		s.Before.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}}
	}
	return s
}

// TestEngineIsAwaited checks when another pass follows for the engine's figures: once the model answers, but never
// before, however long something else is not ready.
func TestEngineIsAwaited(t *testing.T) {
	for _, tc := range []struct {
		reason          string
		wasTold, isTold bool
		want            time.Duration
	}{
		{"nothing is told yet", false, false, 0},
		{"it is told now", false, true, probeDelay},
		{"it was told", true, true, 0},
		{"it does not answer any more", true, false, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			r, s := New(Config{Engines: &askedEngine{}, Clock: testclock.NewFakePassiveClock(now.Time)}), answering(tc.wasTold)
			if !tc.wasTold {
				if err := r.observeEngine(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if tc.isTold {
				s.Workspace.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}}
			}
			r.awaitProbe(s)
			if s.RequeueAfter != tc.want {
				t.Errorf("looks again after %s, want %s", s.RequeueAfter, tc.want)
			}
		})
	}
}

func TestEngineIsAskedOnce(t *testing.T) {
	planned := &v1beta1.EngineStatus{
		Revision:      "chat-0123456789",
		Weights:       &v1beta1.EngineFigure{Planned: "2.00", Actual: "2.10", Difference: "+5.0%"},
		KVCacheTokens: &v1beta1.EngineFigure{Planned: "1000", Actual: "980", Difference: "-2.0%"},
	}
	said := engineprobe.Result{KVCacheTokens: 980, WeightBytes: 21 << 30 / 10}
	for _, tc := range []struct {
		reason string
		scope  *scope.Scope
		engine askedEngine
		asked  int
		want   *v1beta1.EngineStatus
	}{
		{reason: "that it answers is told first", scope: answering(false)},
		{reason: "nobody waits for what it has become: others are told of first", scope: func() *scope.Scope {
			s := answering(true)
			s.Before.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(time.Hour - probeDelay + time.Second))
			return s
		}()},
		{reason: "its figures, beside the plan's", scope: answering(true), engine: askedEngine{said: said}, asked: 1, want: planned},
		{reason: "it was told by somebody whose clock was ahead", engine: askedEngine{said: said}, scope: func() *scope.Scope {
			s := answering(true)
			s.Before.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(2 * time.Hour))
			return s
		}(), asked: 1, want: planned},
		{
			reason: "it does not say: that is no reason to ask again", scope: answering(true), asked: 1,
			engine: askedEngine{err: errors.New("asking for /metrics: status 503")},
			want:   &v1beta1.EngineStatus{Revision: "chat-0123456789", Message: "asking for /metrics: status 503"},
		},
		{reason: "it was asked", scope: func() *scope.Scope {
			s := answering(true)
			s.Workspace.Status.Engine = planned
			return s
		}(), want: planned},
		{reason: "it was asked for another revision", engine: askedEngine{said: said}, scope: func() *scope.Scope {
			s := answering(true)
			s.Workspace.Status.Engine = &v1beta1.EngineStatus{Revision: "chat-older"}
			return s
		}(), asked: 1, want: planned},
		{reason: "a pod that is not ready is not asked", scope: func() *scope.Scope {
			s := answering(true)
			s.Pods[0].Status.Conditions[0].Status = corev1.ConditionFalse
			return s
		}()},
		{reason: "nor is one of the former revision", scope: func() *scope.Scope {
			s := answering(true)
			s.StatefulSet.Status.UpdateRevision = "chat-2"
			return s
		}()},
		{reason: "nor is a pod of the user's own", scope: func() *scope.Scope {
			s := answering(true)
			s.Revision.Plan.Engine = ""
			return s
		}()},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			r := New(Config{Engines: &tc.engine, Clock: testclock.NewFakePassiveClock(now.Add(time.Hour))})
			if err := r.observeEngine(t.Context(), tc.scope); err != nil {
				t.Fatal(err)
			}
			status, _ := tc.scope.Status(nil, now)
			if diff := cmp.Diff(tc.want, status.Engine); diff != "" {
				t.Errorf("status.engine: -want +got:\n%s", diff)
			}
			if len(tc.engine.asked) != tc.asked || tc.asked > 0 && tc.engine.asked[0] != "llamacpp 10.0.0.7:5000" {
				t.Errorf("asked: %q, want %d times llamacpp at 10.0.0.7:5000", tc.engine.asked, tc.asked)
			}
			tc.scope.Workspace.Status = status
			if err := r.observeEngine(t.Context(), tc.scope); err != nil || len(tc.engine.asked) != tc.asked {
				t.Errorf("asked again: %q, error %v", tc.engine.asked, err)
			}
		})
	}
}

// TestFewEnginesAreAskedAtOnce: the next engine is probed later if many probes are running, because a probe without an
// answer blocks its caller.
func TestFewEnginesAreAskedAtOnce(t *testing.T) {
	engine := askedEngine{}
	r := New(Config{Engines: &engine, Clock: testclock.NewFakePassiveClock(now.Add(time.Hour))})
	for range mostProbes {
		r.probes <- struct{}{}
	}
	s := answering(true)
	if err := r.observeEngine(t.Context(), s); err != nil || len(engine.asked) > 0 || s.RequeueAfter != probeDelay/2 {
		t.Errorf("asked %q, error %v, looks again after %s", engine.asked, err, s.RequeueAfter)
	}
	<-r.probes
	for range 2 { // the token is given back
		if err := r.observeEngine(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if len(engine.asked) != 2 {
		t.Errorf("asked %q, want twice", engine.asked)
	}
}
