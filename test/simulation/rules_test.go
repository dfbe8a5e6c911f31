// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/render"
)

// mostPlans is the largest number of plans with machines of a Workspace: the serving one, and its successor.
const mostPlans = 2

// tolerance is the rounding error of a sum.
const tolerance = 1e-6

// rules check the controller's writes against the invariants.
type rules struct {
	world *world
	// learned are all attempts recorded since the controller started, whatever happened to the status, and hidden those
	// not yet shown by its watches. atStart are all attempts recorded by then; it may have learned them although they
	// are no longer in the status, because a status has a limited number.
	learned []refusal.Attempt
	atStart []refusal.Attempt
	hidden  map[refusal.Attempt]bool
	// launched are the attempts with a launched machine, whether or not the controller has seen it.
	launched []refusal.Attempt
	// wanted are the generations of the Workspaces with purchases.
	wanted map[types.UID]int64
	// sizes are the number and the type of machines of revisions.
	sizes map[types.UID]size
	// attempts are the claims' by name.
	attempts map[string]int32
	// begun has for each attempt the reason for a cooldown of its offer at its record; empty if there was none.
	begun map[beginning]string
	// late are the claims requested by a dead controller.
	late   map[types.UID]bool
	bought int
	// released are the attempts ended because of failing pods, and idled those without any ready pod.
	released, idled int
}

// beginning tells attempts apart, though a status was lost between them.
type beginning struct {
	workspace types.UID
	number    int32
	start     time.Time
}

type size struct {
	Plan struct {
		InstanceType string `json:"instanceType"`
		Nodes        int    `json:"nodes"`
	} `json:"plan"`
}

func newRules(w *world) *rules {
	return &rules{
		world: w, wanted: map[types.UID]int64{}, sizes: map[types.UID]size{}, attempts: map[string]int32{},
		begun: map[beginning]string{}, late: map[types.UID]bool{},
	}
}

// restarted clears the controller's memory, except for the objects in its watches.
func (r *rules) restarted(shown map[types.NamespacedName]client.Object) {
	r.learned, r.hidden = nil, map[refusal.Attempt]bool{}
	r.atStart = slices.Concat(r.written(r.world.server.objects[workspaces]), r.written(shown))
	for _, known := range r.written(r.world.server.objects[workspaces]) {
		r.hidden[known] = true
	}
	for _, known := range r.written(shown) {
		delete(r.hidden, known)
	}
}

// written are the attempts in the statuses of Workspaces.
func (r *rules) written(in map[types.NamespacedName]client.Object) []refusal.Attempt {
	var out []refusal.Attempt
	for _, object := range in {
		if ws, isWorkspace := object.(*v1beta1.Workspace); isWorkspace {
			for i := range ws.Status.Attempts {
				out = append(out, r.learnt(askerOf(ws), &ws.Status.Attempts[i])...)
			}
		}
	}
	return out
}

// noticed holds a write of a claim against the rules.
func (r *rules) noticed(made *change) {
	claim, _ := made.after.(*karpv1.NodeClaim)
	if claim != nil && made.before != nil {
		r.noteLaunch(claim)
	}
	if made.before != nil || claim == nil {
		return
	}
	r.bought++
	if r.world.isLate {
		r.late[claim.UID] = true
		r.mustGo(claim)
		return
	}
	r.mustBeJudged(claim)
	r.mayBuy(claim)
	r.checkDay(claim)
	r.checkNumber(claim)
	r.checkMoney(claim)
}

// noteLaunch records that the cloud has launched a machine: that disproves a missing quota.
func (r *rules) noteLaunch(claim *karpv1.NodeClaim) {
	if !claim.StatusConditions().IsTrue(karpv1.ConditionTypeLaunched) {
		return
	}
	ws := r.ownerOf(claim)
	if ws == nil {
		return
	}
	if a := attemptIn(ws, r.attemptOf(claim)); a != nil && a.EndTime == nil {
		known := refusal.Attempt{Asker: askerOf(ws), Offering: r.offering(a), Started: a.StartTime.Time, Launched: true}
		if !slices.Contains(r.launched, known) {
			r.launched = append(r.launched, known)
		}
	}
}

func askerOf(ws *v1beta1.Workspace) refusal.Asker {
	return refusal.Asker{Workspace: ws.UID, Namespace: ws.Namespace}
}

// checkDay reports a machine bought at a price, or of a type, of another day.
func (r *rules) checkDay(claim *karpv1.NodeClaim) {
	machine := nodeclaim.MachineOf(claim)
	if !r.world.allows(machine.InstanceType) {
		r.world.fail("%s was bought, a %s, where the administrator allows %v", claim.Name, machine.InstanceType, r.world.limits.InstanceTypes)
	}
	known, err := r.world.market().catalog.ResolveSKU(machine.InstanceType)
	if err != nil {
		r.world.fail("%s: %v", claim.Name, err)
		return
	}
	price := known.Prices["eastus"]
	if machine.CapacityType == v1beta1.CapacitySpot {
		price = known.SpotPrices["eastus"]
	}
	if math.Abs(machine.HourlyPrice-price) > tolerance {
		r.world.fail("%s was bought for %.2f, and costs %.2f today", claim.Name, machine.HourlyPrice, price)
	}
}

// allows reports whether the administrator of the running controller allows a machine type.
func (w *world) allows(instanceType string) bool {
	return len(w.limits.InstanceTypes) == 0 || slices.ContainsFunc(w.limits.InstanceTypes, func(pattern string) bool {
		isMatch, err := path.Match(pattern, instanceType)
		return err == nil && isMatch
	})
}

// ownerOf is the Workspace of a claim; nil if it is gone.
func (r *rules) ownerOf(claim *karpv1.NodeClaim) *v1beta1.Workspace {
	for _, ws := range all[v1beta1.Workspace](r.world.server) {
		if string(ws.UID) == claim.Labels[v1beta1.LabelWorkspaceUID] {
			return ws
		}
	}
	return nil
}

// attemptOf is the number of a claim's attempt.
func (r *rules) attemptOf(claim *karpv1.NodeClaim) int32 {
	if known := r.attempts[claim.Name]; known > 0 {
		return known
	}
	owner := capacity.Owner{
		Name: claim.Labels[v1beta1.LabelMachineWorkspaceName], Namespace: claim.Labels[v1beta1.LabelMachineWorkspaceNamespace],
		UID: types.UID(claim.Labels[v1beta1.LabelWorkspaceUID]),
	}
	ordinal, err := strconv.Atoi(claim.Labels[v1beta1.LabelMachineOrdinal])
	for number := int32(1); err == nil && number < 1000; number++ {
		if nodeclaim.Name(owner, number, ordinal) == claim.Name {
			r.attempts[claim.Name] = number
			return number
		}
	}
	r.world.fail("nobody can tell the attempt of claim %s", claim.Name)
	return 0
}

// mayBuy reports a forbidden request for a machine.
func (r *rules) mayBuy(claim *karpv1.NodeClaim) {
	ws := r.ownerOf(claim)
	switch {
	case ws == nil:
		r.world.fail("%s was bought for a Workspace that is gone", claim.Name)
		return
	case !ws.DeletionTimestamp.IsZero() || ws.Suspend:
		r.world.fail("%s was bought for a Workspace that wants none", claim.Name)
	case r.seen(ws) != ws.Generation:
		r.world.fail("%s was bought for generation %d of a Workspace that is at %d", claim.Name, r.seen(ws), ws.Generation)
	}
	r.wanted[claim.UID] = ws.Generation
	number := r.attemptOf(claim)
	i := slices.IndexFunc(ws.Status.Attempts, func(a v1beta1.Attempt) bool { return a.Number == number })
	if i < 0 {
		first := r.pinned(ws, claim)
		if first == nil || number != first.Number || len(ws.Status.Attempts) > 0 {
			r.world.fail("%s was bought for attempt %d, which nobody wrote down", claim.Name, number)
			return
		}
		if acquire.Retry(ws) == "" { // otherwise somebody asked for it before the first purchase
			r.checkCooling(ws, first)
		}
		return
	}
	a := &ws.Status.Attempts[i]
	if a.Reason != "" || a.InstanceType != instanceType(claim) {
		r.world.fail("%s was bought for attempt %d, which is %s and has ended: %q", claim.Name, number, a.InstanceType, a.Reason)
	}
	isRetry := a.Retry != "" && (i == 0 || ws.Status.Attempts[i-1].Retry != a.Retry)
	if isRetry {
		return // somebody asked for it
	}
	if i > 0 {
		last := &ws.Status.Attempts[i-1]
		if (last.Reason == v1beta1.ReasonMisconfigured || last.Reason == v1beta1.ReasonCannotServe) && last.Generation == ws.Generation {
			r.world.fail("%s was bought although nobody mended what attempt %d stumbled over", claim.Name, last.Number)
		}
	}
	r.checkCooling(ws, a)
}

// pinned is the first attempt of a Workspace by the revision of a purchase; nil if there is none.
func (r *rules) pinned(ws *v1beta1.Workspace, claim *karpv1.NodeClaim) *v1beta1.Attempt {
	for _, revision := range all[appsv1.ControllerRevision](r.world.server) {
		if !metav1.IsControlledBy(revision, ws) {
			continue
		}
		made, err := render.Decode(revision)
		if err != nil {
			r.world.fail("revision %s: %v", revision.Name, err)
			return nil
		}
		if made.Plan.InstanceType == instanceType(claim) {
			return &v1beta1.Attempt{
				Number: 1, InstanceType: made.Plan.InstanceType, CapacityType: made.Plan.CapacityType,
				Zone:          strings.Join(slices.Sorted(slices.Values(made.Plan.Zones)), ","),
				NodeClassName: claim.Spec.NodeClassRef.Name, StartTime: revision.CreationTimestamp,
			}
		}
	}
	return nil
}

// seen is the generation of a Workspace shown by the controller's watch; 0 if there is none. A pass that buys must have
// excluded a newer one.
func (r *rules) seen(ws *v1beta1.Workspace) int64 {
	shown := r.world.process.watched.objects[workspaces][client.ObjectKeyFromObject(ws)]
	if shown == nil || shown.GetUID() != ws.UID {
		return 0
	}
	return shown.GetGeneration()
}

// checkCooling reports an attempt begun while its offer cooled down, although this controller, or a status, knew it. An
// unknown refusal may be repeated once after a restart, and is known then. A refusal learned after the begin of an
// attempt comes too late for it: a recorded attempt is completed, whatever was refused before its machines were
// requested, even within the status's second.
func (r *rules) checkCooling(ws *v1beta1.Workspace, a *v1beta1.Attempt) {
	why, isKnown := r.begun[beginning{ws.UID, a.Number, a.StartTime.UTC()}]
	if !isKnown {
		why = r.cooling(ws, a)
	}
	if why != "" {
		r.world.fail("attempt %d of %s asks for %s, which is left alone %s", a.Number, ws.Name, a.InstanceType, why)
	}
}

// cooling is the reason for a cooldown of an attempt's offer, by all facts and by the facts that this controller must
// know; empty if one of them has no cooldown. More facts may mean less cooldown: a message that does not name the
// capacity type counts for both types the first time, and then for the requested one only.
func (r *rules) cooling(ws *v1beta1.Workspace, a *v1beta1.Attempt) string {
	told := r.written(r.world.server.objects[workspaces])
	all := slices.Concat(told, r.learned, r.atStart)
	must := append(slices.DeleteFunc(told, func(t refusal.Attempt) bool { return r.hidden[t] }), r.learned...)
	why := ""
	for _, known := range [][]refusal.Attempt{all, must, slices.Concat(all, r.launched), slices.Concat(must, r.launched)} {
		known = slices.DeleteFunc(known, func(t refusal.Attempt) bool { return t.Ended.After(a.StartTime.Time) })
		until, cause, isCooling := refusal.NewCooldowns(known).Active(a.StartTime.Time, askerOf(ws), r.offering(a))
		if !isCooling {
			return ""
		}
		why = fmt.Sprintf("until %s: %s", until.Format(time.TimeOnly), cause)
	}
	return why
}

// checkNumber counts the machines of a Workspace, those on their way out, too.
func (r *rules) checkNumber(claim *karpv1.NodeClaim) {
	uid := claim.Labels[v1beta1.LabelWorkspaceUID]
	byAttempt := map[int32]int{}
	for _, other := range all[karpv1.NodeClaim](r.world.server) {
		if other.Labels[v1beta1.LabelWorkspaceUID] == uid {
			byAttempt[r.attemptOf(other)]++
		}
	}
	for number := range byAttempt {
		if number != r.attemptOf(claim) && !r.isDeclared(claim, number) {
			r.world.fail("%s was bought while machines of attempt %d were there, which does not serve", claim.Name, number)
		}
	}
	if len(byAttempt) > mostPlans {
		r.world.fail("machines of %d attempts are held at once: %v", len(byAttempt), byAttempt)
	}
	if most := r.planned(types.UID(uid), instanceType(claim)); byAttempt[r.attemptOf(claim)] > most {
		r.world.fail("%d machines are held for attempt %d, whose plan has %d", byAttempt[r.attemptOf(claim)], r.attemptOf(claim), most)
	}
}

// isDeclared reports whether machines of an earlier attempt may exist beside a claim: it got them, and its status
// records that.
func (r *rules) isDeclared(claim *karpv1.NodeClaim, number int32) bool {
	ws := r.ownerOf(claim)
	if ws == nil {
		return false
	}
	held := attemptIn(ws, number)
	return held != nil && held.Reason == "" && held.ReadyTime != nil && number < r.attemptOf(claim)
}

// attemptIn is the status's attempt with a number, or nil.
func attemptIn(ws *v1beta1.Workspace, number int32) *v1beta1.Attempt {
	i := slices.IndexFunc(ws.Status.Attempts, func(a v1beta1.Attempt) bool { return a.Number == number })
	if i < 0 {
		return nil
	}
	return &ws.Status.Attempts[i]
}

// planned is how many machines of a type the plans of a Workspace ask for at most.
func (r *rules) planned(owner types.UID, machine string) int {
	most := 0
	for _, revision := range all[appsv1.ControllerRevision](r.world.server) {
		if controller := metav1.GetControllerOfNoCopy(revision); controller == nil || controller.UID != owner {
			continue
		}
		known, ok := r.sizes[revision.UID]
		if !ok {
			if err := json.Unmarshal(revision.Data.Raw, &known); err != nil {
				r.world.fail("revision %s: %v", revision.Name, err)
			}
			r.sizes[revision.UID] = known
		}
		if known.Plan.InstanceType == machine {
			most = max(most, known.Plan.Nodes)
		}
	}
	return most
}

// isUnseen reports whether a claim came from the request of a dead controller, and the present one cannot have seen it.
func (r *rules) isUnseen(claim *karpv1.NodeClaim) bool {
	shown, ok := r.world.process.watched.objects[claims][nameOf(claim.Name)]
	return r.late[claim.UID] && (!ok || shown.GetUID() != claim.UID)
}

// checkMoney adds up the paid machines at each request for more. The request of a dead controller may arrive in the
// moment of another's purchase: no ceiling can hold then, and mustGo requires the release of the machine.
func (r *rules) checkMoney(claim *karpv1.NodeClaim) {
	owner, namespace := claim.Labels[v1beta1.LabelWorkspaceUID], claim.Labels[v1beta1.LabelMachineWorkspaceNamespace]
	var ofWorkspace, ofNamespace, ofCluster float64
	for _, other := range all[karpv1.NodeClaim](r.world.server) {
		if r.isUnseen(other) {
			continue
		}
		price := priceOf(other)
		ofCluster += price
		if other.Labels[v1beta1.LabelMachineWorkspaceNamespace] == namespace {
			ofNamespace += price
		}
		if other.Labels[v1beta1.LabelWorkspaceUID] == owner {
			ofWorkspace += price
		}
	}
	limits := []struct {
		name        string
		sum, limits float64
	}{
		{"Workspace", ofWorkspace, r.world.limits.Ceilings.Workspace},
		{"namespace", ofNamespace, r.world.limits.Ceilings.Namespace},
		{"cluster", ofCluster, r.world.limits.Ceilings.Cluster},
	}
	if ws := r.ownerOf(claim); ws != nil {
		limits = append(limits, struct {
			name        string
			sum, limits float64
		}{"user", ofWorkspace, maxPrice(ws)})
	}
	for _, limit := range limits {
		if limit.limits > 0 && limit.sum > limit.limits+tolerance {
			r.world.fail("with %s the machines cost %.2f, over the ceiling of the %s of %.2f", claim.Name, limit.sum, limit.name, limit.limits)
		}
	}
}

func priceOf(claim *karpv1.NodeClaim) float64 {
	price, err := strconv.ParseFloat(claim.Annotations[v1beta1.AnnotationHourlyPrice], 64)
	if err != nil {
		return 1e9 // nobody bought it knowing the price
	}
	return price
}

// maxPrice is the user's limit; 0 is any price.
func maxPrice(ws *v1beta1.Workspace) float64 {
	if ws.Resource.Placement == nil {
		return 0
	}
	price, err := strconv.ParseFloat(ws.Resource.Placement.MaxHourlyPrice, 64)
	if err != nil {
		return 0
	}
	return price
}

// heard learns the recorded attempts, and checks that a Workspace goes after its machines.
func (r *rules) heard(made *change) {
	before, _ := made.before.(*v1beta1.Workspace)
	after, _ := made.after.(*v1beta1.Workspace)
	if before != nil && after == nil && r.world.isWriting && len(r.of(before.UID)) > 0 {
		r.world.fail("%s was let go before its machines", before.Name)
	}
	if before == nil || after == nil {
		return
	}
	r.checkEnds(before, after)
	for i := range after.Status.Attempts {
		a := &after.Status.Attempts[i]
		isOld := slices.ContainsFunc(before.Status.Attempts, func(b v1beta1.Attempt) bool { return reflect.DeepEqual(*a, b) })
		if !isOld {
			r.learned = append(r.learned, r.learnt(askerOf(after), a)...)
		}
		start := beginning{after.UID, a.Number, a.StartTime.UTC()}
		if _, isKnown := r.begun[start]; isKnown {
			continue
		}
		isAdopted := slices.ContainsFunc(a.NodeClaims, func(name string) bool { return r.world.server.objects[claims][nameOf(name)] != nil })
		if r.begun[start] = ""; !isAdopted { // one that is, was begun before
			r.begun[start] = r.cooling(after, a)
		}
	}
}

// unanswered learns the attempts in the controller's current write: it knows them, with or without an answer.
func (r *rules) unanswered(object client.Object) {
	one := func(of client.Object) map[types.NamespacedName]client.Object {
		return map[types.NamespacedName]client.Object{{}: of}
	}
	before := r.written(one(r.world.server.objects[workspaces][client.ObjectKeyFromObject(object)]))
	for _, known := range r.written(one(object)) {
		if !slices.Contains(before, known) {
			r.learned = append(r.learned, known)
		}
	}
}

// learnt is an attempt as refusals are remembered.
func (r *rules) learnt(who refusal.Asker, a *v1beta1.Attempt) []refusal.Attempt {
	known := refusal.Attempt{Asker: who, Offering: r.offering(a), Started: a.StartTime.Time}
	var out []refusal.Attempt
	if a.ReadyTime != nil {
		got := known
		got.Ended = a.ReadyTime.Time
		out = append(out, got)
	}
	scope, err := refusal.ParseScope(a.Scope)
	if a.EndTime == nil || a.Cooldown == nil || err != nil {
		return out
	}
	known.Ended, known.Cause, known.Scope = a.EndTime.Time, refusal.Cause(a.Reason), scope
	known.Cooldown, known.Guessed = a.Cooldown.Duration, a.Guessed
	return append(out, known)
}

func (r *rules) offering(a *v1beta1.Attempt) refusal.Offering {
	out := refusal.Offering{InstanceType: a.InstanceType, Zone: a.Zone, CapacityType: a.CapacityType, NodeClass: a.NodeClassName}
	for _, machine := range machineTypes() {
		if machine.Name == a.InstanceType {
			out.Family = machine.QuotaFamily
		}
	}
	return out
}

// Writes allowed for each Workspace, machine, deed of somebody and restart.
const (
	writesPerWorkspace = 25
	writesPerMachine   = 16
	writesPerDeed      = 12
)

// atEnd holds the end of a run against the rules.
func (r *rules) atEnd() {
	w := r.world
	for _, claim := range all[karpv1.NodeClaim](w.server) {
		// How long a machine takes to go once it has been let go is the cloud's matter.
		if r.ownerOf(claim) == nil && claim.DeletionTimestamp.IsZero() {
			w.fail("%s has no owner at the end, and nobody lets go of it", claim.Name)
		}
	}
	most := writesPerWorkspace*w.people.made + writesPerMachine*r.bought + writesPerDeed*(w.people.acts+w.restarts)
	if w.writes > most {
		w.fail("%d writes for %d Workspaces, %d machines, %d deeds and %d restarts, want at most %d",
			w.writes, w.people.made, r.bought, w.people.acts, w.restarts, most)
	}
	w.isCalm = w.people.areServed()
	w.until(w.now().Add(calm))
}

// of are the claims of a Workspace.
func (r *rules) of(ws types.UID) []*karpv1.NodeClaim {
	return slices.DeleteFunc(all[karpv1.NodeClaim](r.world.server), func(claim *karpv1.NodeClaim) bool {
		return claim.Labels[v1beta1.LabelWorkspaceUID] != string(ws)
	})
}
