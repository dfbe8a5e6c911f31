// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/replicas"
)

// zoning chooses the zones of a set's replicas.
type zoning struct {
	set      *v1beta1.InferenceSet
	target   template
	policy   replicas.Policy
	children []*v1beta1.Workspace
	// views are those of the children.
	views []view
}

// locate sets the zones of the replicas: those of their nodes, or else those in which they look for machines.
func (r *Reconciler) locate(ctx context.Context, z zoning) error {
	if z.set.Spec.ZoneSpread == nil {
		return nil
	}
	for i := range z.views {
		v := &z.views[i]
		v.Zone = z.target.chosen(z.children[i]).present()
		if v.node == "" {
			continue
		}
		node := &corev1.Node{}
		err := client.IgnoreNotFound(r.Client.Get(ctx, client.ObjectKey{Name: v.node}, node))
		if err != nil {
			return fmt.Errorf("reading node %s of workspace %s/%s: %w", v.node, z.set.Namespace, v.Name, err)
		}
		v.Zone = cmp.Or(node.Labels[corev1.LabelTopologyZone], v.Zone)
	}
	return nil
}

// refused returns the zones without a machine for a waiting replica. New replicas try other zones first.
func (z *zoning) refused() []string {
	var out []string
	for i := range z.views {
		v, tried := &z.views[i], z.target.chosen(z.children[i]).tried
		if v.IsLeaving || v.IsReady || v.node != "" || len(tried) == 0 {
			continue
		}
		if v.noMachine == (problem{}) {
			tried = tried[:len(tried)-1]
		}
		out = append(out, tried...)
	}
	return out
}

// rechoose chooses another zone for each replica that finds no machine. Until the replica has tried that zone, it does
// not count as lacking a machine, and is no evidence against the template.
func (z *zoning) rechoose() {
	refused := z.refused()
	for i := range z.views {
		v, has := &z.views[i], z.target.chosen(z.children[i])
		if v.IsLeaving || !v.IsCurrent || v.noMachine == (problem{}) || len(has.zones) == 0 {
			continue
		}
		if next, isOther := z.another(v.Name, has, refused); isOther {
			v.rechosen, v.Zone, v.IsFailing = &next, next.present(), false
			v.LacksMachine, v.GainsByDeletion = false, false
		}
	}
}

// another returns the next choice of zones for a replica that finds no machine; false if there is none. If the set does
// not spread, the next choice is empty: the replica gets the zones of the template.
func (z *zoning) another(name string, has choice, refused []string) (choice, bool) {
	spread := spreadOf(z.set, z.target)
	if !spread.IsOn() {
		return choice{}, true
	}
	next := spread.Another(z.policy, replicasOf(z.views), name, has.tried, refused)
	switch {
	case next == "":
		isNarrow := !spread.IsStrict && len(has.zones) < len(has.tried) // it was strict before
		return choice{has.tried, has.tried}, isNarrow
	case spread.IsStrict:
		return choice{[]string{next}, append(slices.Clone(has.tried), next)}, true
	}
	tried := append(slices.Clone(has.tried), next)
	return choice{tried, tried}, true
}

// chooseNew returns the choice for a new replica with a template.
func (z *zoning) chooseNew(t template, all []replicas.Replica) choice {
	spread := spreadOf(z.set, t)
	if !spread.IsOn() {
		return choice{}
	}
	zone := []string{spread.Next(z.policy, all, z.refused())}
	return choice{zone, zone}
}

// chooseAgain returns the choice for a replica that gets the current template. The replica keeps its present choice. If
// the template no longer allows that choice, the replica gets the zone of its nodes, or else a choice like a new
// replica. A replica that was created without a choice gets none, because its zones alone would change it.
func (z *zoning) chooseAgain(name string) choice {
	ws := find(z.children, name)
	has, spread := z.target.chosen(ws), spreadOf(z.set, z.target)
	if len(has.zones) > 0 || ws.Annotations[v1beta1.AnnotationZoneSpread] == "" || !spread.IsOn() {
		return has
	}
	i := slices.IndexFunc(z.views, func(v view) bool { return v.Name == name })
	if zone := z.views[i].Zone; slices.Contains(spread.Zones, zone) {
		return choice{[]string{zone}, []string{zone}}
	}
	has = z.chooseNew(z.target, replicasOf(z.views))
	z.views[i].Zone = has.present()
	return has
}
