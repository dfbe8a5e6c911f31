// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// variants are the two forms of a set's template: as it is, and without spot machines for spec.onDemandReplicas.
type variants struct {
	any, steady template
	// need is how many replicas are to be steady; 0 if the template allows no spot machines anyway.
	need int
}

func variantsOf(set *v1beta1.InferenceSet, t template) variants {
	steady, differs := t.steady()
	out := variants{any: t, steady: steady}
	if differs {
		out.need = max(0, int(set.Spec.OnDemandReplicas))
	}
	return out
}

// assign names the Workspaces that are to have the steady variant. Workspaces with it come first, then former templates
// without spot machines, then machines that are not spot, then the oldest Workspaces. So an edit of the template converts
// no other replica, and a second decision agrees with the first. desired renders these variants.
func (v variants) assign(desired renderer, children []*v1beta1.Workspace) map[string]bool {
	out := map[string]bool{}
	if v.need == 0 {
		return out
	}
	ranks := make([][]string, 4)
	for _, ws := range children {
		if !ws.DeletionTimestamp.IsZero() {
			continue
		}
		rank := 3
		switch {
		case isCurrent(ws, desired(ws, true)):
			rank = 0
		case !allowsSpot(ws.Resource.Placement):
			rank = 1
		case ws.Status.Plan != nil && ws.Status.Plan.CapacityType != v1beta1.CapacitySpot:
			rank = 2
		}
		ranks[rank] = append(ranks[rank], ws.Name)
	}
	names := slices.Concat(ranks...)
	for _, name := range names[:min(v.need, len(names))] {
		out[name] = true
	}
	return out
}

func allowsSpot(placement *v1beta1.PlacementSpec) bool {
	return placement != nil && slices.Contains(placement.CapacityTypes, v1beta1.CapacitySpot)
}

// of returns the template for a replica.
func (v variants) of(isSteady bool) template {
	if isSteady {
		return v.steady
	}
	return v.any
}

// lacking returns how many new replicas are to be steady. Those with a former template count only if they keep it,
// because otherwise new ones take their place.
func (v variants) lacking(views []view, keepsFormer bool) int {
	missing := v.need
	for i := range views {
		if views[i].IsSteady && (views[i].IsCurrent || keepsFormer && views[i].isOffSpot) && !views[i].IsLeaving {
			missing--
		}
	}
	return max(0, missing)
}

// views returns the views of Workspaces, each compared with the variant that it is to have. spec is the spec's template,
// which is another one after a rollback.
func (v variants) views(set *v1beta1.InferenceSet, children []*v1beta1.Workspace, spec variants) []view {
	desired, updated := v.renderer(set), spec.renderer(set)
	steady := v.assign(desired, children)
	out := make([]view, len(children))
	for i, ws := range children {
		isSteady := steady[ws.Name]
		out[i] = viewOf(ws, desired(ws, isSteady))
		out[i].IsSteady, out[i].isUpdated = isSteady, isCurrent(ws, updated(ws, isSteady))
		out[i].isOffSpot = !allowsSpot(ws.Resource.Placement)
		hash, isFormer := ws.Labels[v1beta1.LabelTemplateHash], !out[i].IsCurrent && !out[i].isUpdated
		out[i].isLabelled = out[i].isUpdated && hash != "" && hash == spec.any.hash
		out[i].IsStray = isFormer && hash != "" && set.Status.CurrentRevision != "" && revisionName(set, hash) != set.Status.CurrentRevision
	}
	return out
}

// renderer renders a Workspace from the current template, with the present zones, but with the name of the set.
type renderer func(ws *v1beta1.Workspace, isSteady bool) *v1beta1.Workspace

// renderer returns the renderer of a set. It renders once for all Workspaces with the same zones.
func (v variants) renderer(set *v1beta1.InferenceSet) renderer {
	rendered := map[string]*v1beta1.Workspace{}
	return func(ws *v1beta1.Workspace, isSteady bool) *v1beta1.Workspace {
		has := v.any.chosen(ws)
		key := fmt.Sprintf("%t %q", isSteady, has.zones) // the annotation is not compared
		if rendered[key] == nil {
			rendered[key] = v.of(isSteady).in(has).child(set, set.Name)
		}
		return rendered[key]
	}
}

// retire marks the replicas that a new steady one replaces as those with a former template, until it is ready. Otherwise
// the set would delete the new one, because it is one too many and not ready.
func (v variants) retire(desired int, views []view) {
	isStarting := slices.ContainsFunc(views, func(each view) bool {
		return each.IsSteady && each.IsCurrent && !each.IsLeaving && (!each.IsReady || !each.IsProven)
	})
	if !isStarting {
		return
	}
	others := max(0, desired-v.need)
	for i := range views {
		if each := &views[i]; each.IsCurrent && !each.IsSteady && !each.IsLeaving {
			others--
			each.IsCurrent = others >= 0
		}
	}
}
