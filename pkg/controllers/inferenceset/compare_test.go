// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/comparison"
)

// counted is a stand-in for the routers.
type counted struct {
	pair comparison.Pair
	err  error
	// reads is the number of reads, and templates are those read.
	reads     int
	templates map[string]bool
}

func (c *counted) Compare(_ context.Context, _ types.NamespacedName, template string) (comparison.Pair, error) {
	c.reads++
	c.templates[template] = true
	return c.pair, c.err
}

func (c *counted) are(served, failed int64) {
	c.pair = comparison.Pair{New: comparison.Counts{Served: served, Failed: failed}, Previous: comparison.Counts{Served: 1000}}
}

// compares adds the comparison with its defaults.
func compares(set *v1beta1.InferenceSet) {
	set.Spec.Replicas = new(int32(3))
	set.Spec.UpdateStrategy.RollingUpdate.Rollback.Comparison = &v1beta1.ComparisonSpec{}
}

// newComparison returns a stage whose set compares templates, with an edit that one of three replicas has.
func newComparison(t *testing.T, change ...func(*v1beta1.InferenceSet)) (*stage, *counted) {
	t.Helper()
	s := newStage(t, append([]func(*v1beta1.InferenceSet){compares}, change...)...)
	routers := &counted{templates: map[string]bool{}}
	s.routers = routers
	s.restart()
	s.goOn(t)
	s.goOn(t)
	if routers.reads > 0 {
		t.Errorf("%d reads of the routers without a rollout", routers.reads)
	}
	s.edit(t, better)
	s.goOn(t)
	return s, routers
}

// later lets some time pass.
func (s *stage) later(t *testing.T, after time.Duration) {
	t.Helper()
	s.clock.Step(after)
	s.goOn(t)
}

func (s *stage) ready(t *testing.T) string {
	t.Helper()
	return meta.FindStatusCondition(s.set(t).Status.Conditions, v1beta1.ConditionReady).Message
}

// TestWorseTemplateIsRolledBack: a rollout waits for requests, and ends if the new template fails too many.
func TestWorseTemplateIsRolledBack(t *testing.T) {
	for _, c := range []struct {
		reason string
		change func(*v1beta1.InferenceSet)
		ready  string
	}{
		{"a rolling update", func(*v1beta1.InferenceSet) {}, v1beta1.ReasonRollingOut},
		{"a canary with a weight", canary, v1beta1.ReasonReplicasReady},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s, routers := newComparison(t, c.change)
			routers.are(10, 80)
			s.later(t, time.Minute)
			s.expect(t, c.ready, "", "", "better")
			hash := s.set(t).Status.Canary.TemplateHash
			if !routers.templates[hash] || len(routers.templates) != 1 {
				t.Errorf("the templates %v are read, want %s", routers.templates, hash)
			}
			before := routers.reads
			routers.are(20, 80)
			s.later(t, compareEvery)
			s.expect(t, v1beta1.ReasonRolledBack, "", "", "")
			if again := routers.reads - before; again != 2 { // from the cache, and before the write
				t.Errorf("the routers are read %d times, want 2: not during the rollback", again)
			}
			status := s.set(t).Status
			want := "chat-" + hash + " serves worse than " + status.CurrentRevision + ": 80.0% of 100 requests to the new template failed, " +
				"but only 0.0% of 1000 to the previous one; at most 5 percentage points more are allowed"
			if status.Rollout.Message != want {
				t.Errorf("the rollout says %q, want %q", status.Rollout.Message, want)
			}
			if !meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionStalled) || !strings.Contains(s.ready(t), want) {
				t.Errorf("the conditions are %+v", status.Conditions)
			}
			failed, reads, writes := status.Rollout.FailedTime, routers.reads, s.writes
			routers.are(1000, 0) // it is not tried again
			s.restart()
			s.later(t, time.Hour)
			if routers.reads != reads || s.writes != writes || !s.set(t).Status.Rollout.FailedTime.Equal(failed) {
				t.Errorf("after the rollback, there are %d reads and %d writes", routers.reads-reads, s.writes-writes)
			}
			var events []string
			for len(s.events) > 0 {
				if event := <-s.events; strings.Contains(event, v1beta1.ReasonRolledBack) {
					events = append(events, event)
				}
			}
			if len(events) != 1 || !strings.HasSuffix(events[0], want) {
				t.Errorf("the events are %q", events)
			}
			routers.are(0, 0)
			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "best" })
			s.goOn(t)
			if got := s.set(t).Status; got.Rollout.FailedTime != nil || got.Canary.TemplateHash == hash {
				t.Errorf("after another edit, the status is %+v", got)
			}
		})
	}
}

// TestEqualTemplateIsRolledOut: a rollout goes on once the requests suffice, and it reads nothing when it is complete.
func TestEqualTemplateIsRolledOut(t *testing.T) {
	s, routers := newComparison(t)
	routers.are(99, 0)
	s.later(t, 10*time.Minute)
	s.expect(t, v1beta1.ReasonRollingOut, "", "", "better")
	want := "The comparison of the templates has no result yet: the routers have counted fewer than 100 requests to the new template"
	if !strings.HasSuffix(s.ready(t), want) {
		t.Errorf("Ready says %q", s.ready(t))
	}
	if split := s.set(t).Status.Canary; split == nil || split.Weight != nil {
		t.Errorf("the split is %+v, want one without a weight", split)
	}
	if available := s.set(t).Status.Rollout.AvailableReplicas; available != 1 {
		t.Errorf("%d replicas are available, want 1", available)
	}
	writes := s.writes
	s.later(t, compareEvery)
	if s.writes != writes {
		t.Errorf("%d writes while nothing changes", s.writes-writes)
	}
	routers.are(100, 0)
	s.later(t, compareEvery)
	s.expect(t, v1beta1.ReasonReplicasReady, "better", "better", "better")
	s.expectSplit(t, 0)
	reads, writes := routers.reads, s.writes
	s.later(t, time.Hour)
	if routers.reads != reads || s.writes != writes {
		t.Errorf("a settled set makes %d reads and %d writes", routers.reads-reads, s.writes-writes)
	}
}

// TestAllMayBeUnavailable: while the comparison waits, a replica keeps the previous template, and new replicas get it, also
// if all replicas may be unavailable, and before the new ones have been ready for minReadySeconds.
func TestAllMayBeUnavailable(t *testing.T) {
	routers := &counted{templates: map[string]bool{}}
	s := newStage(t, compares, func(set *v1beta1.InferenceSet) {
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		rolling.MaxUnavailable, rolling.MinReadySeconds = new(intstr.FromString("100%")), 60
	})
	s.routers = routers
	s.restart()
	s.goOn(t)
	s.later(t, time.Minute)
	s.edit(t, better)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRollingOut, "", "better", "better")
	routers.are(10, 0)
	s.later(t, time.Minute)
	s.expect(t, v1beta1.ReasonRollingOut, "", "better", "better")
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(5)) })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRollingOut, "", "", "", "better", "better")
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(1)) })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRollingOut, "", "better")
	routers.are(100, 0)
	s.later(t, compareEvery)
	s.expect(t, v1beta1.ReasonReplicasReady, "better") // the surplus one goes
}

// TestScalingNeedsThePreviousTemplate: without the previous template, the set does not grow while the comparison waits.
func TestScalingNeedsThePreviousTemplate(t *testing.T) {
	s, _ := newComparison(t)
	current := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: set().Namespace, Name: s.set(t).Status.CurrentRevision}}
	if err := s.Delete(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(4)) })
	s.goOn(t)
	if got := len(s.workspaces(t)); got != 3 || !strings.Contains(s.ready(t), "wait for the deadline of the comparison") {
		t.Errorf("there are %d replicas, want 3; Ready says %q", got, s.ready(t))
	}
	s.later(t, comparedBy)
	s.expect(t, v1beta1.ReasonReplicasReady, "better", "better", "better", "better")
}

// TestSilentRoutersDelay: without the routers' counts, a rollout goes on after the deadline, also if the controller
// restarts in between. Old counts of failures do not count then.
func TestSilentRoutersDelay(t *testing.T) {
	for _, c := range []struct {
		reason, says string
		silence      func(*stage, *counted)
	}{
		{"a router does not answer", "router r-1 does not answer on port 8443", func(_ *stage, routers *counted) {
			routers.are(0, 1000)
			routers.err = errors.New("router r-1 does not answer on port 8443")
		}},
		{"there is no router", "no router is installed: enable it in the chart", func(s *stage, _ *counted) { s.routers = nil }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s, routers := newComparison(t)
			c.silence(s, routers)
			s.restart()
			s.later(t, time.Second)
			s.expect(t, v1beta1.ReasonRollingOut, "", "", "better")
			if !strings.HasSuffix(s.ready(t), c.says) {
				t.Errorf("Ready says %q, want %q", s.ready(t), c.says)
			}
			s.restart()
			s.later(t, 14*time.Minute-time.Second)
			s.expect(t, v1beta1.ReasonRollingOut, "", "", "better")
			s.later(t, time.Minute)
			s.expect(t, v1beta1.ReasonReplicasReady, "better", "better", "better")
		})
	}
}

// TestComparisonIsNotRepeated: a rollout that has passed goes on, although a restarted router has lost its counts. It
// still fails if the next counts show errors.
func TestComparisonIsNotRepeated(t *testing.T) {
	for _, c := range []struct {
		reason         string
		served, failed int64
		want           []string
		ready          string
	}{
		{"no counts", 0, 0, []string{"", "better", "better"}, v1beta1.ReasonReplicasReady},
		{"errors", 100, 100, []string{"", "", ""}, v1beta1.ReasonRolledBack},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s, routers := newComparison(t, func(set *v1beta1.InferenceSet) {
				set.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2))
			})
			routers.are(100, 0)
			s.later(t, compareEvery)
			if s.set(t).Status.Rollout.ComparedTime == nil {
				t.Error("the end of the comparison is not recorded")
			}
			routers.are(c.served, c.failed)
			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1)) })
			s.later(t, compareEvery)
			s.expect(t, c.ready, c.want...)
		})
	}
}

// TestWorseTemplateSurvivesCrashes: whichever write fails, the failure is acted upon once.
func TestWorseTemplateSurvivesCrashes(t *testing.T) {
	for failing := 0; ; failing++ {
		s, routers := newComparison(t)
		routers.are(0, 100)
		first := s.writes
		s.failing = first + failing
		s.clock.Step(compareEvery)
		s.goOn(t)
		s.expect(t, v1beta1.ReasonRolledBack, "", "", "")
		if s.writes-first <= failing {
			return
		}
	}
}

// TestCustomDeadline: the deadline of the comparison is the user's.
func TestCustomDeadline(t *testing.T) {
	s, _ := newComparison(t, func(set *v1beta1.InferenceSet) {
		set.Spec.UpdateStrategy.RollingUpdate.Rollback.Comparison.Deadline = &metav1.Duration{Duration: time.Minute}
	})
	s.later(t, 59*time.Second)
	s.expect(t, v1beta1.ReasonRollingOut, "", "", "better")
	s.later(t, time.Second)
	s.expect(t, v1beta1.ReasonReplicasReady, "better", "better", "better")
}
