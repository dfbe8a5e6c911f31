// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/replicas"
)

// zoneSpread returns the condition about the balance of the zones.
func zoneSpread(set *v1beta1.InferenceSet, target template, children []*v1beta1.Workspace, views []view) metav1.Condition {
	if set.Spec.ZoneSpread == nil {
		return metav1.Condition{Type: v1beta1.ConditionZoneSpread}
	}
	spread := spreadOf(set, target)
	if !spread.IsOn() {
		return no(v1beta1.ConditionZoneSpread, v1beta1.ReasonZonesUneven, "spec.template names fewer than two zones, so the "+
			"replicas do not spread: name more in spec.template.resource.placement.zones")
	}
	numbers := replicas.Count(replicasOf(views))
	state := zoneWords(spread.Zones, numbers)
	i := slices.IndexFunc(views, func(v view) bool { return !v.IsLeaving && v.noMachine != (problem{}) })
	most, fewest, skew := spread.Extremes(numbers)
	switch {
	case i >= 0:
		why := refusedWords(&views[i], target.chosen(children[i]), spread.IsStrict)
		return no(v1beta1.ConditionZoneSpread, v1beta1.ReasonZoneRefused, state+". "+why)
	case skew > spread.MaxSkew:
		return no(v1beta1.ConditionZoneSpread, v1beta1.ReasonZonesUneven, fmt.Sprintf("%s. The difference is more than maxSkew (%d). "+
			"The set moves no replica that has machines: to move one, delete a Workspace in %s; the set creates its replacement in %s",
			state, spread.MaxSkew, most, fewest))
	default:
		return yes(v1beta1.ConditionZoneSpread, v1beta1.ReasonZonesEven, state)
	}
}

// zoneWords lists the numbers of replicas by zone.
func zoneWords(zones []string, numbers map[string]int) string {
	var parts []string
	rest := 0
	for _, n := range numbers {
		rest += n
	}
	for _, zone := range zones {
		parts = append(parts, fmt.Sprintf("%s %d", zone, numbers[zone]))
		rest -= numbers[zone]
	}
	if rest > 0 {
		parts = append(parts, fmt.Sprintf("elsewhere or unknown %d", rest))
	}
	return "replicas by zone: " + strings.Join(parts, ", ")
}

// refusedWords explains why a replica finds no machine in its zones, and what happens next.
func refusedWords(v *view, has choice, isStrict bool) string {
	where := ""
	if len(has.tried) > 0 {
		where = " in " + strings.Join(has.tried, ", ")
	}
	out := fmt.Sprintf("No machine%s for %s", where, strings.TrimSuffix(v.words(v.noMachine), "."))
	switch {
	case v.rechosen != nil:
		return out + ". The set tries another zone"
	case isStrict && len(has.zones) > 0:
		return fmt.Sprintf("%s. The Workspace waits in %s: to use any zone, set spec.zoneSpread.whenUnsatisfiable to ScheduleAnyway; to try "+
			"the zones again, delete the Workspace", out, has.present())
	default:
		return out
	}
}
