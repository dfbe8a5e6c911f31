// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	cloudscript "github.com/modelberth/modelberth/test/script"
)

// attemptPause is a refused claim's pause before it asks again, and the delay until somebody misses a dead machine.
// Karpenter takes seconds, and minutes.
const attemptPause = 100 * time.Millisecond

// story is one claim's course under a script.
type story struct {
	// attempts of the claim so far, and the time of its next.
	attempts int
	again    time.Time
	// underWay means the cloud has not answered the latest attempt, and answered is the time of its answer.
	underWay bool
	answered time.Time
	answer   *reply
	// fate of the sold machine, its offer, and the time of the sale.
	fate  *cloudscript.Rule
	offer cloudscript.Offer
	sold  time.Time
	// met means the fate's time has come, and deleted is the time of the machine's first deletion request.
	met     bool
	deleted time.Time
}

// reply is the cloud's answer to one attempt: a machine, or no.
type reply struct {
	rule    cloudscript.Rule
	offer   cloudscript.Offer
	refusal *cloudscript.Refusal
}

// Play lets a script decide from now on about the claims of one namespace's Workspaces, in place of Script and
// ScriptOrdinal; namespace "" is for all without a script of their own. Claims with sold machines keep their fate.
func (k *Karpenter) Play(namespace string, s cloudscript.Script) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.players == nil {
		k.players, k.stories = map[string]*cloudscript.Player{}, map[types.UID]*story{}
	}
	k.players[namespace] = cloudscript.NewPlayer(s)
}

// playing returns the player and the story of a claim; nil if no script is played.
func (k *Karpenter) playing(claim *karpv1.NodeClaim) (*cloudscript.Player, *story) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// The second is on machines of gpu-provisioner.
	player := k.players[cmp.Or(claim.Labels[v1beta1.LabelMachineWorkspaceNamespace], claim.Labels[v1beta1.LabelWorkspaceNamespace])]
	if player == nil {
		player = k.players[""]
	}
	if player == nil {
		return nil, nil
	}
	if k.stories[claim.UID] == nil {
		k.stories[claim.UID] = &story{}
	}
	return player, k.stories[claim.UID]
}

// play brings a claim one stage further in its story.
func (k *Karpenter) play(ctx context.Context, player *cloudscript.Player, st *story, claim *karpv1.NodeClaim) (ctrl.Result, error) {
	deleting := !claim.DeletionTimestamp.IsZero()
	if !deleting && controllerutil.AddFinalizer(claim, terminationFinalizer) {
		return againAfterRace(k.client.Update(ctx, claim))
	}
	now := time.Now()
	if st.fate == nil && st.attempts == 0 && claim.Status.ProviderID != "" {
		// Its machine was sold before there was a script.
		st.fate, st.sold = &cloudscript.Rule{Outcome: cloudscript.Accept}, now
		st.offer.Zone = claim.Labels[corev1.LabelTopologyZone]
	}
	// A claim with an unanswered request can neither get a refusal nor be deleted.
	if st.underWay || st.fate == nil && !deleting {
		if wait := k.ask(player, st, claim, now); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		if st.answer.refusal != nil && !deleting {
			return k.refuse(ctx, st, claim, now)
		}
	}
	wait, err := k.fulfil(ctx, st, claim, now)
	if err == nil && deleting {
		return k.endStory(ctx, st, claim, now)
	}
	result, err := againAfterRace(err)
	if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result, err
}

// ask makes the claim's next attempt or goes on with the one under way, and reports how long there is
// no answer.
func (k *Karpenter) ask(player *cloudscript.Player, st *story, claim *karpv1.NodeClaim, now time.Time) time.Duration {
	if !st.underWay {
		if now.Before(st.again) {
			return st.again.Sub(now)
		}
		st.attempts++
		st.underWay, st.answer = true, nil
	}
	if st.answer == nil {
		answer, delay, silent := attempt(player, claim, st.attempts)
		if silent {
			return attemptPause
		}
		st.answer, st.answered = &answer, now.Add(delay)
	}
	if now.Before(st.answered) {
		return st.answered.Sub(now)
	}
	st.underWay = false
	if st.answer.refusal == nil {
		st.fate, st.offer, st.sold = &st.answer.rule, st.answer.offer, now
	} else {
		st.again = now.Add(attemptPause)
	}
	return 0
}

// attempt asks for the claim's allowed offers until one is sold; silent means there is no answer yet.
func attempt(player *cloudscript.Player, claim *karpv1.NodeClaim, number int) (answer reply, delay time.Duration, silent bool) {
	var said []cloudscript.Refusal
	_, inPool := claim.Labels[karpv1.NodePoolLabelKey]
	for _, offer := range offersOf(claim) {
		got := player.Answer(cloudscript.Request{
			Offer: offer, Claim: string(claim.UID), Attempt: fmt.Sprintf("%s/%d", claim.UID, number),
		})
		answer = reply{rule: got.Rule, offer: offer}
		switch {
		case got.Rule.Outcome == cloudscript.Hang:
			return reply{}, 0, true
		case got.Rule.KeepsWaiting(inPool):
			return answer, got.Rule.Delay.Duration, false
		case got.Rule.Outcome == cloudscript.SlowCreate:
			answer.rule.Outcome = cloudscript.Slow // the answer is not, the machine is
			return answer, 0, false
		case !got.Rule.Outcome.Refuses():
			return answer, 0, false
		}
		said = append(said, got.Refusal)
		delay += got.Rule.Delay.Duration
		if got.Rule.Outcome == cloudscript.APIError {
			break // a failing API is not asked for another zone
		}
	}
	verdict, _ := cloudscript.Combine(answer.rule.Cloud, said)
	answer.refusal = &verdict
	return answer, delay, false
}

// refuse follows Karpenter with a claim refused by its provider.
func (k *Karpenter) refuse(ctx context.Context, st *story, claim *karpv1.NodeClaim, now time.Time) (ctrl.Result, error) {
	said := st.answer.refusal
	if said.Ending == cloudscript.Delete {
		message := fmt.Sprintf("NodeClaim %s event: insufficient capacity, %s", claim.Name, said.Message)
		if err := k.record(ctx, claim, "InsufficientCapacityError", message, now); err != nil {
			return againAfterRace(err)
		}
		return againAfterRace(client.IgnoreNotFound(k.client.Delete(ctx, claim)))
	}
	reason := cmp.Or(said.Reason, "LaunchFailed")
	launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
	if launched.Reason != reason || launched.Message != said.Message {
		claim.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeLaunched, reason, said.Message)
		if err := k.client.Status().Update(ctx, claim); err != nil {
			return againAfterRace(err)
		}
	}
	return ctrl.Result{RequeueAfter: attemptPause}, nil
}

// record writes an event about the claim into the namespace of events about cluster-scoped objects.
func (k *Karpenter) record(ctx context.Context, claim *karpv1.NodeClaim, reason, message string, now time.Time) error {
	at := metav1.NewTime(now)
	err := k.client.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s.%s.%x", claim.Name, claim.UID, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: claim.Name, UID: claim.UID,
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		FirstTimestamp: at, LastTimestamp: at, Count: 1, Source: corev1.EventSource{Component: "karpenter"},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
