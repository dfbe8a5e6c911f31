// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/test/script"
)

// people write manifests, change their minds, and read conditions.
type people struct {
	world *world
	made  int
	acts  int
}

// one of several.
func one[T any](w *world, of ...T) T { return of[w.random.IntN(len(of))] }

// settle makes the Workspaces and the ceilings of a run.
func (p *people) settle() {
	w := p.world
	w.limits.Ceilings = one(w, ledger.Ceilings{}, ledger.Ceilings{}, ledger.Ceilings{Cluster: 12}, ledger.Ceilings{Namespace: 10},
		ledger.Ceilings{Workspace: 9, Cluster: 14}, ledger.Ceilings{Cluster: 6, Namespace: 5})
	for range one(w, 1, 1, 2, 2, 3) {
		p.make(fmt.Sprintf("ws-%d", p.made))
	}
}

func (p *people) make(name string) {
	p.made++
	ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: one(p.world, "a", "a", "b"), Name: name}}
	p.wish(ws)
	if err := p.world.server.create(ws); err != nil {
		return // its former self is not gone yet
	}
	p.world.tell("somebody makes %s: %s", name, wishOf(ws))
}

// wish fills in a spec.
func (p *people) wish(ws *v1beta1.Workspace) {
	w := p.world
	ws.Resource.InstanceType = ""
	var names []string
	for _, machine := range machineTypes() {
		if w.random.IntN(2) == 0 {
			names = append(names, machine.Name)
		}
	}
	if len(names) == 0 {
		names = append(names, one(w, machineTypes()...).Name)
	}
	ws.Resource.Placement = &v1beta1.PlacementSpec{
		NodeSource: one(w, v1beta1.NodeSourceProvisioned, v1beta1.NodeSourceProvisioned, v1beta1.NodeSourceAny), InstanceTypes: names,
		Zones:         one(w, nil, nil, []string{"eastus-1"}, []string{"eastus-2", "eastus-3"}),
		CapacityTypes: one(w, nil, []v1beta1.CapacityType{v1beta1.CapacitySpot}, []v1beta1.CapacityType{v1beta1.CapacitySpot, v1beta1.CapacityOnDemand}),
	}
	if ws.Resource.Placement.MaxHourlyPrice = ""; w.random.IntN(4) == 0 {
		ws.Resource.Placement.MaxHourlyPrice = one(w, "3", "6")
	}
	if ws.Inference == nil {
		ws.Inference = one(w, template(), template(), preset(smallModel), preset(largeModel))
		ws.Resource.Count = one(w, nil, nil, new(2))
	}
}

// spoil makes a spec impossible to plan.
func spoil(ws *v1beta1.Workspace) { ws.Resource.InstanceType = "Standard_Unknown" }

func isSpoiled(ws *v1beta1.Workspace) bool { return ws.Resource.InstanceType != "" }

// preset may be slow: the large model is to serve on two A10 as well.
func preset(name string) *v1beta1.InferenceSpec {
	return &v1beta1.InferenceSpec{
		Preset:     &v1beta1.PresetSpec{Name: name},
		Objectives: &v1beta1.ObjectivesSpec{TimePerOutputToken: &metav1.Duration{Duration: 200 * time.Millisecond}},
	}
}

func template() *v1beta1.InferenceSpec {
	return &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "server", Image: "server", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse("1")}},
	}}}}}
}

func wishOf(ws *v1beta1.Workspace) string {
	place := ws.Resource.Placement
	text := fmt.Sprintf("%s, of %v %v in %v for %q, %s", whatOf(ws), place.InstanceTypes, place.CapacityTypes, place.Zones,
		place.MaxHourlyPrice, place.NodeSource)
	if isSpoiled(ws) {
		text += ", with an instanceType beside it"
	}
	return text
}

// whatOf is the model of a Workspace.
func whatOf(ws *v1beta1.Workspace) string {
	what := "a template"
	if ws.Inference.Preset != nil {
		what = ws.Inference.Preset.Name
	}
	if ws.Resource.Count != nil {
		what += fmt.Sprintf(" on %d", *ws.Resource.Count)
	}
	return what
}

// act has somebody do something, or the cloud change its mind.
func (p *people) act() {
	w := p.world
	var ws *v1beta1.Workspace
	if known := all[v1beta1.Workspace](w.server); len(known) > 0 {
		ws = one(w, known...)
	}
	if w.draw(w.faults.outages) {
		w.noClaims = w.now().Add(w.karpenter.cloud.between(time.Second, 10*time.Minute))
		w.tell("the API server takes no claims until %s", w.noClaims.Format(time.TimeOnly))
	}
	if what := w.random.IntN(21); ws == nil || what < 11 {
		w.karpenter.cloud.stir()
		w.tell("the cloud changes its mind: %s", w.karpenter.cloud)
	} else {
		p.do(what, ws)
	}
}

// hear may have somebody do something while the controller does.
func (p *people) hear() {
	w := p.world
	if !w.draw(w.faults.meddling) {
		return
	}
	w.after(w.karpenter.cloud.between(0, 5*time.Second), func() {
		if known := all[v1beta1.Workspace](w.server); len(known) > 0 && w.faults.meddling > 0 {
			p.do(11+w.random.IntN(10), one(w, known...))
		}
	})
}

func (p *people) do(what int, ws *v1beta1.Workspace) {
	w := p.world
	p.acts++
	switch what {
	case 11, 12:
		w.tell("the status of %s is lost", ws.Name)
		edit(w.server, ws, func(next *v1beta1.Workspace) { next.Status = v1beta1.WorkspaceStatus{} })
		// Our own status triggers no pass of the controller. Its removal, by the restore of a backup, takes the lease,
		// too, and the next leader has seen it.
		w.server.heard[workspaces] = len(w.server.log[workspaces])
		w.after(w.karpenter.cloud.between(0, 10*time.Minute), w.kill)
	case 13:
		p.change(ws, p.wish)
	case 14:
		p.change(ws, one(w, p.wish, spoil))
	case 15:
		p.change(ws, func(next *v1beta1.Workspace) { next.Suspend = !next.Suspend })
		w.after(late, func() { w.rules.checkSuspended(ws) })
	case 16:
		w.tell("somebody deletes %s", ws.Name)
		_ = w.server.delete(ws, nil)
		if w.random.IntN(4) == 0 {
			w.tell("and does not wait for its machines")
			edit(w.server, ws, func(next *v1beta1.Workspace) { next.Finalizers = nil })
		}
		if w.random.IntN(2) == 0 {
			w.after(w.karpenter.cloud.between(0, 3*time.Minute), func() { p.make(ws.Name) })
		}
	case 17:
		p.retry(ws)
	case 18:
		p.upgrade()
	case 19:
		p.fallIll(ws)
	default:
		if p.made < 5 {
			p.make(fmt.Sprintf("ws-%d", p.made))
		}
	}
}

// upgrade starts a controller with the prices of another version, or with other limits; at times with the same.
func (p *people) upgrade() {
	w := p.world
	w.today = one(w, w.today, 0, 1)
	w.limits.InstanceTypes = one(w, w.limits.InstanceTypes, nil, []string{"Standard_N*_A"}, []string{"Standard_ND*"})
	w.tell("a controller is installed with market %d, where %q may be bought", w.today, w.limits.InstanceTypes)
	w.kill()
}

// change changes a spec.
func (p *people) change(ws *v1beta1.Workspace, change func(*v1beta1.Workspace)) {
	edit(p.world.server, ws, func(next *v1beta1.Workspace) {
		change(next)
		next.Generation++
		p.world.tell("somebody changes %s: %s, suspended %t", next.Name, wishOf(next), next.Suspend)
	})
}

// retry asks to have refused machines tried again.
func (p *people) retry(ws *v1beta1.Workspace) {
	p.acts++
	edit(p.world.server, ws, func(next *v1beta1.Workspace) {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1beta1.AnnotationRetryCapacity, strconv.Itoa(p.acts))
	})
	p.world.tell("somebody has %s tried again", ws.Name)
}

// read lets somebody follow the message of a condition.
func (p *people) read() {
	for _, ws := range all[v1beta1.Workspace](p.world.server) {
		// A Workspace that serves is not stalled, but its machine may need a successor that nobody can buy.
		for _, kind := range []string{v1beta1.ConditionStalled, v1beta1.ConditionResourceReady} {
			said := meta.FindStatusCondition(ws.Status.Conditions, kind)
			if said != nil && (said.Reason == v1beta1.ReasonMisconfigured || said.Reason == v1beta1.ReasonCannotServe) {
				p.retry(ws)
				break
			}
		}
	}
}

// mend ends the fault: one offer of each Workspace works for good, and nobody's mind changes any more.
func (p *people) mend() {
	w := p.world
	w.faults.meddling, w.faults.outages = 0, 0
	for _, ws := range slices.Sorted(maps.Keys(w.ills)) {
		p.cure(ws)
	}
	var working []script.Offer
	for _, ws := range all[v1beta1.Workspace](w.server) {
		if isSpoiled(ws) && w.random.IntN(2) == 0 {
			continue // nobody notices
		}
		if ws.Suspend || isSpoiled(ws) {
			p.change(ws, func(next *v1beta1.Workspace) { next.Suspend, next.Resource.InstanceType = false, "" })
		}
		if possible := p.possible(ws); len(possible) > 0 {
			working = append(working, one(w, possible...))
		}
	}
	w.karpenter.cloud.heal(working)
	w.tell("fault ends: %s", w.karpenter.cloud)
}

// possible are the offers, in no zone, for a Workspace on its own.
func (p *people) possible(ws *v1beta1.Workspace) []script.Offer {
	place, ceilings := ws.Resource.Placement, p.world.limits.Ceilings
	if isSpoiled(ws) {
		return nil
	}
	var out []script.Offer
	for _, machine := range place.InstanceTypes {
		for _, capacityType := range capacityTypesOf(place) {
			price, err := p.world.facts.price(p.world.today, ws, machine, capacityType)
			if err != nil {
				p.world.fail("%v", err)
			}
			isDear := false
			for _, limit := range []float64{maxPrice(ws), ceilings.Workspace, ceilings.Namespace, ceilings.Cluster} {
				isDear = isDear || limit > 0 && price > limit+tolerance
			}
			if price >= 0 && !isDear && p.world.allows(machine) {
				out = append(out, script.Offer{SKU: machine, CapacityType: string(capacityType)})
			}
		}
	}
	return out
}

func capacityTypesOf(place *v1beta1.PlacementSpec) []v1beta1.CapacityType {
	if len(place.CapacityTypes) > 0 {
		return place.CapacityTypes
	}
	return []v1beta1.CapacityType{v1beta1.CapacityOnDemand}
}

// lacking is the reason for an unserved Workspace that could be served; empty if all possible ones are served.
func (p *people) lacking() string {
	for _, ws := range all[v1beta1.Workspace](p.world.server) {
		if !ws.DeletionTimestamp.IsZero() {
			continue
		}
		if meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionReady) && p.isServed(ws) {
			continue
		}
		for _, offer := range p.possible(ws) {
			price, _ := p.world.facts.price(p.world.today, ws, offer.SKU, v1beta1.CapacityType(offer.CapacityType))
			if p.works(ws, offer) && p.isLeft(ws, price) {
				said := ""
				if ready := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionReady); ready != nil {
					said = ready.Reason + ": " + ready.Message
				}
				return fmt.Sprintf("%s is not ready (%s): %s, and %v works", ws.Name, said, wishOf(ws), offer)
			}
		}
	}
	return ""
}

// areServed reports whether all Workspaces are, and none is on its way out.
func (p *people) areServed() bool {
	for _, ws := range all[v1beta1.Workspace](p.world.server) {
		if !meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionReady) || !p.isServed(ws) || !ws.DeletionTimestamp.IsZero() {
			return false
		}
	}
	return true
}

// works reports whether an offer is sold and works wherever a Workspace may have it.
func (p *people) works(ws *v1beta1.Workspace, offer script.Offer) bool {
	places := ws.Resource.Placement.Zones
	if len(places) == 0 {
		places = zones()
	}
	for _, offer.Zone = range places {
		if p.world.karpenter.cloud.rule(offer).Outcome != "" {
			return false
		}
	}
	return true
}

// isLeft reports whether the money for a Workspace is free.
func (p *people) isLeft(ws *v1beta1.Workspace, price float64) bool {
	ofNamespace, ofCluster := price, price
	for _, claim := range all[karpv1.NodeClaim](p.world.server) {
		if claim.Labels[v1beta1.LabelWorkspaceUID] == string(ws.UID) {
			continue
		}
		ofCluster += priceOf(claim)
		if claim.Labels[v1beta1.LabelMachineWorkspaceNamespace] == ws.Namespace {
			ofNamespace += priceOf(claim)
		}
	}
	ceilings := p.world.limits.Ceilings
	return (ceilings.Namespace == 0 || ofNamespace <= ceilings.Namespace+tolerance) &&
		(ceilings.Cluster == 0 || ofCluster <= ceilings.Cluster+tolerance)
}

// isServed reports whether as many machines are there as the plan asks for, and all of them work.
func (p *people) isServed(ws *v1beta1.Workspace) bool {
	ready := 0
	for _, claim := range p.world.rules.of(ws.UID) {
		switch {
		case p.world.isWorking(claim):
			ready++
		case claim.DeletionTimestamp.IsZero():
			return false // it is on its way, or others are got in its place
		}
	}
	return ws.Status.Plan != nil && ready == int(ws.Status.Plan.Nodes)
}
