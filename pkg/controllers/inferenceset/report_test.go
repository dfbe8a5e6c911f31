// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/replicas"
)

func ready(name string) view {
	return view{Replica: replicas.Replica{Name: name, IsReady: true, IsCurrent: true, Nodes: 1, HourlyPrice: 3.67}}
}

func starting(name string) view {
	return view{
		Replica:  replicas.Replica{Name: name, IsCurrent: true, Nodes: 1},
		notReady: problem{"Progressing", "waiting for a machine"},
	}
}

func blocked(name string) view {
	v := starting(name)
	v.isStalled, v.blocked = true, problem{"SpendingCeiling", "the namespace's ceiling is $10.00/h: raise it"}
	return v
}

// short returns a replica that waits for a machine and retries on its own.
func short(name string) view {
	v := starting(name)
	v.LacksMachine, v.blocked = true, problem{"NoCapacity", "sold out until 14:05"}
	return v
}

func old(v view) view {
	v.IsCurrent = false
	return v
}

// rolledBack is a pass after the failure of the spec's template: over a replica a, and a ready one.
func rolledBack(a view, isRolling bool) pass {
	failed := &v1beta1.RolloutStatus{
		Revision: "chat-2", FailedTime: &metav1.Time{Time: time.Unix(1, 0)}, Message: "Workspace a: EngineArgsRefused: no such flag.",
	}
	return pass{
		set:   set(func(s *v1beta1.InferenceSet) { s.Status.CurrentRevision, s.Status.Rollout = "chat-1", failed }),
		views: []view{a, ready("b")}, decision: replicas.Decision{IsRolling: isRolling},
		spec: &revision{name: "chat-2"}, current: "chat-1", rollout: failed,
	}
}

func TestConditions(t *testing.T) {
	rolling := replicas.Decision{IsRolling: true}
	tests := []struct {
		reason  string
		pass    pass
		failure problem
		want    []string
	}{
		{"all replicas are ready", pass{set: set(), views: []view{ready("a"), ready("b")}}, problem{}, []string{
			"Ready=True ReplicasReady: 2/2 replicas are ready, for $7.34/h in all",
			"InferenceSetReady=True inferencesetReady: 2/2 replicas are ready, for $7.34/h in all",
			"Available=True ReplicaAvailable: http://chat.team leads to 2 of 2 replicas",
		}},
		{"one is starting", pass{set: set(), views: []view{ready("a"), starting("b")}}, problem{}, []string{
			"Ready=False ReplicasNotReady: 1/2 replicas are ready, for $3.67/h in all. Workspace b: Progressing: waiting for a machine",
			"InferenceSetReady=False inferencesetNotReady: 1/2 replicas are ready, for $3.67/h in all. Workspace b: Progressing: waiting for a machine",
			"Available=True ReplicaAvailable: http://chat.team leads to 1 of 2 replicas",
		}},
		{"one waits for money", pass{set: set(), views: []view{starting("a"), blocked("b")}}, problem{}, []string{
			"Ready=False ReplicaBlocked: 0/2 replicas are ready. Workspace b: SpendingCeiling: the namespace's ceiling is $10.00/h: raise it",
			"InferenceSetReady=False inferencesetNotReady: 0/2 replicas are ready. Workspace b: SpendingCeiling: the namespace's ceiling is $10.00/h: raise it",
			"Available=False NoReplicaAvailable: no replica is ready. Workspace a: Progressing: waiting for a machine",
			"Stalled=True ReplicaBlocked: Workspace b: SpendingCeiling: the namespace's ceiling is $10.00/h: raise it",
		}},
		{"a rollout goes on", pass{set: set(), views: []view{old(ready("a")), starting("b")}, decision: rolling}, problem{}, []string{
			"Ready=False RollingOut: 1/2 replicas are ready, for $3.67/h in all, 0 of them with the current template: replacing the others. Workspace b: Progressing: waiting for a machine",
			"InferenceSetReady=False inferencesetNotReady: 1/2 replicas are ready, for $3.67/h in all, 0 of them with the current template: replacing the others. Workspace b: Progressing: waiting for a machine",
			"Available=True ReplicaAvailable: http://chat.team leads to 1 of 2 replicas",
		}},
		{"a rollout stops", pass{set: set(), views: []view{old(ready("a")), blocked("b")}, decision: rolling}, problem{}, []string{
			"Ready=False RolloutStopped: 1/2 replicas are ready, for $3.67/h in all. The rollout has stopped, and the replicas that it did not reach keep the previous template. Workspace b: SpendingCeiling: the namespace's ceiling is $10.00/h: raise it. Fix the cause, or set spec.template back to the previous template",
			"InferenceSetReady=False inferencesetNotReady: 1/2 replicas are ready, for $3.67/h in all. The rollout has stopped, and the replicas that it did not reach keep the previous template. Workspace b: SpendingCeiling: the namespace's ceiling is $10.00/h: raise it. Fix the cause, or set spec.template back to the previous template",
			"Available=True ReplicaAvailable: http://chat.team leads to 1 of 2 replicas",
			"Stalled=True RolloutStopped: The rollout has stopped, and the replicas that it did not reach keep the previous template. Workspace b: SpendingCeiling: the namespace's ceiling is $10.00/h: raise it. Fix the cause, or set spec.template back to the previous template",
		}},
		{"one waits for machines, and tries again", pass{set: set(), views: []view{ready("a"), short("b")}}, problem{}, []string{
			"Ready=False ReplicaBlocked: 1/2 replicas are ready, for $3.67/h in all. Workspace b: NoCapacity: sold out until 14:05",
			"InferenceSetReady=False inferencesetNotReady: 1/2 replicas are ready, for $3.67/h in all. Workspace b: NoCapacity: sold out until 14:05",
			"Available=True ReplicaAvailable: http://chat.team leads to 1 of 2 replicas",
		}},
		{"a former Service is being deleted", pass{
			set: set(), views: []view{ready("a"), ready("b")},
		}, problem{"Progressing", "Waiting for the deletion."}, []string{
			"Ready=False Progressing: 2/2 replicas are ready, for $7.34/h in all. Waiting for the deletion.",
			"InferenceSetReady=False inferencesetNotReady: 2/2 replicas are ready, for $7.34/h in all. Waiting for the deletion.",
			"Available=True ReplicaAvailable: http://chat.team leads to 2 of 2 replicas",
		}},
		{"no replica is asked for", pass{set: set(func(s *v1beta1.InferenceSet) { s.Spec.Replicas = new(int32(0)) })}, problem{}, []string{
			"Ready=True ReplicasReady: 0/0 replicas are ready",
			"InferenceSetReady=True inferencesetReady: 0/0 replicas are ready",
			"Available=False ScaledToZero: spec.replicas is 0: no replicas run, and no machines are kept",
		}},
		{"a limit of machines", pass{
			set:   set(func(s *v1beta1.InferenceSet) { s.Spec.NodeCountLimit = 1 }),
			views: []view{ready("a")}, decision: replicas.Decision{IsLimited: true},
		}, problem{}, []string{
			"Ready=False NodeCountLimit: 1/2 replicas are ready, for $3.67/h in all. the number of machines in use is 1, and another replica would exceed spec.nodeCountLimit (1): raise the limit, or lower spec.replicas",
			"InferenceSetReady=False inferencesetNotReady: 1/2 replicas are ready, for $3.67/h in all. the number of machines in use is 1, and another replica would exceed spec.nodeCountLimit (1): raise the limit, or lower spec.replicas",
			"Available=True ReplicaAvailable: http://chat.team leads to 1 of 1 replicas",
			"Stalled=True NodeCountLimit: the number of machines in use is 1, and another replica would exceed spec.nodeCountLimit (1): raise the limit, or lower spec.replicas",
			"ScalingLimited=True NodeCountLimit: the number of machines in use is 1, and another replica would exceed spec.nodeCountLimit (1): raise the limit, or lower spec.replicas",
		}},
		{"a new template failed, and the replicas return to the previous one", rolledBack(old(starting("a")), true), problem{}, []string{
			"Ready=False RolledBack: 1/2 replicas are ready, for $3.67/h in all. spec.template failed, and the replicas return to the previous template. Workspace a: EngineArgsRefused: no such flag. Correct spec.template, or set it back to the previous template. Workspace a: Progressing: waiting for a machine",
			"InferenceSetReady=False inferencesetNotReady: 1/2 replicas are ready, for $3.67/h in all. spec.template failed, and the replicas return to the previous template. Workspace a: EngineArgsRefused: no such flag. Correct spec.template, or set it back to the previous template. Workspace a: Progressing: waiting for a machine",
			"Available=True ReplicaAvailable: http://chat.team leads to 1 of 2 replicas",
			"Stalled=True RolledBack: spec.template failed, and the replicas return to the previous template. Workspace a: EngineArgsRefused: no such flag. Correct spec.template, or set it back to the previous template",
		}},
		{"they have it again", rolledBack(ready("a"), false), problem{}, []string{
			"Ready=False RolledBack: 2/2 replicas are ready, for $7.34/h in all. spec.template failed, and the replicas have the previous template again. Workspace a: EngineArgsRefused: no such flag. Correct spec.template, or set it back to the previous template",
			"InferenceSetReady=False inferencesetNotReady: 2/2 replicas are ready, for $7.34/h in all. spec.template failed, and the replicas have the previous template again. Workspace a: EngineArgsRefused: no such flag. Correct spec.template, or set it back to the previous template",
			"Available=True ReplicaAvailable: http://chat.team leads to 2 of 2 replicas",
			"Stalled=True RolledBack: spec.template failed, and the replicas have the previous template again. Workspace a: EngineArgsRefused: no such flag. Correct spec.template, or set it back to the previous template",
		}},
		{"a set that is being deleted", pass{
			set:   set(func(s *v1beta1.InferenceSet) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
			views: []view{ready("a")},
		}, problem{}, []string{
			"Ready=False inferencesetDeleted: waiting until 1 Workspace and all machines are deleted",
			"InferenceSetReady=False inferencesetDeleted: waiting until 1 Workspace and all machines are deleted",
			"Available=False inferencesetDeleted: waiting until 1 Workspace and all machines are deleted",
			"InferenceSetDeleting=True inferencesetDeleted: waiting until 1 Workspace and all machines are deleted",
		}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			f := facts{&test.pass, test.failure}
			var got []string
			for _, c := range f.status(metav1.Time{Time: time.Unix(2, 0)}).Conditions {
				got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConditionsOfOthersStay: the condition Autoscaling, which another controller sets, stays.
func TestConditionsOfOthersStay(t *testing.T) {
	f := facts{pass: &pass{set: set(), views: []view{ready("a"), ready("b")}}}
	other := metav1.Condition{Type: v1beta1.ConditionAutoscaling, Status: metav1.ConditionTrue, Reason: "FollowsDemand", ObservedGeneration: 7}
	f.set.Status.Conditions = []metav1.Condition{other}
	if diff := cmp.Diff(other, f.status(metav1.Time{Time: time.Unix(1, 0)}).Conditions[0]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestStatusIsStable: a second pass over the same facts changes nothing, however late it is.
func TestStatusIsStable(t *testing.T) {
	f := facts{pass: &pass{set: set(), views: []view{ready("a"), blocked("b")}}}
	f.views[1].blocked.Message = strings.Repeat("long ", 1000)
	f.set.Status = f.status(metav1.Time{Time: time.Unix(1, 0)})
	if diff := cmp.Diff(f.set.Status, f.status(metav1.Time{Time: time.Unix(1000, 0)})); diff != "" {
		t.Errorf("status of a second pass (-first +second):\n%s", diff)
	}
}
