// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// States of Workspaces, as label values of the metric.
const (
	stateReady = "ready"
	// stateStarting Workspaces have not answered yet.
	stateStarting = "starting"
	// stateUnready Workspaces answered before, but do not answer now, whether or not they wait for the user.
	stateUnready = "unready"
	// stateStalled Workspaces have not answered yet, and wait for the user.
	stateStalled   = "stalled"
	stateSuspended = "suspended"
	stateDeleting  = "deleting"
)

// kaitoPhases maps our states to the phases of KAITO's metric.
func kaitoPhases() map[string]string {
	return map[string]string{
		stateReady: "succeeded", stateStarting: "pending", stateUnready: "error", stateStalled: "error", stateSuspended: "pending",
		stateDeleting: "deleting",
	}
}

// RegisterPopulation registers the numbers of Workspaces, read from caches at each scrape. Only the leader reports
// them, so the values of all replicas may be summed.
func RegisterPopulation(registry prometheus.Registerer, reader client.Reader, leads <-chan struct{}) error {
	return replace(registry, population{
		reader: reader, leads: leads,
		states: prometheus.NewDesc("modelberth_workspaces",
			"Workspaces by state: ready, starting (has not answered yet), stalled (the same, and the user must act), unready (answered before), suspended or deleting.",
			[]string{"state"}, nil),
		stalls: prometheus.NewDesc("modelberth_workspaces_stalled",
			"Workspaces whose condition Stalled is true, by reason. Some of them still answer with an older plan.", []string{"reason"}, nil),
		plans: prometheus.NewDesc("modelberth_workspaces_planned",
			"Workspaces with an accepted plan, by the plan's machine type and engine.", []string{"instance_type", "engine"}, nil),
		phases: prometheus.NewDesc("kaito_workspace_count",
			"KAITO's metric: Workspaces by phase (succeeded, pending, error or deleting). A starting Workspace is pending; in KAITO it counts as error.", []string{"phase"}, nil),
	})
}

// population is a stateless collector.
type population struct {
	reader                        client.Reader
	leads                         <-chan struct{}
	states, stalls, plans, phases *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (p population) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{p.states, p.stalls, p.plans, p.phases} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (p population) Collect(out chan<- prometheus.Metric) {
	select {
	case <-p.leads:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	list := &v1beta1.WorkspaceList{}
	if err := p.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(p.states, err)
		return
	}
	p.send(out, list.Items)
}

// send reports the numbers. It reports 0 for a state or phase without Workspaces.
func (p population) send(out chan<- prometheus.Metric, all []v1beta1.Workspace) {
	states, phases, stalls, plans := map[string]float64{}, map[string]float64{}, map[string]float64{}, map[[2]string]float64{}
	for state, phase := range kaitoPhases() {
		states[state], phases[phase] = 0, 0
	}
	for i := range all {
		ws := &all[i]
		state := stateOf(ws)
		states[state]++
		phases[kaitoPhases()[state]]++
		if stall := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionStalled); stall != nil && stall.Status == "True" {
			stalls[stall.Reason]++
		}
		if plan := ws.Status.Plan; plan != nil {
			plans[[2]string{plan.InstanceType, plan.Engine}]++
		}
	}
	sendAll(out, p.states, states)
	sendAll(out, p.phases, phases)
	sendAll(out, p.stalls, stalls)
	for labels, number := range plans {
		out <- prometheus.MustNewConstMetric(p.plans, prometheus.GaugeValue, number, labels[:]...)
	}
}

// sendAll reports the numbers of one metric by its label.
func sendAll(out chan<- prometheus.Metric, desc *prometheus.Desc, numbers map[string]float64) {
	for _, label := range slices.Sorted(maps.Keys(numbers)) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, numbers[label], label)
	}
}

// stateOf returns the state of a Workspace in the metric.
func stateOf(ws *v1beta1.Workspace) string {
	switch conditions := ws.Status.Conditions; {
	case !ws.DeletionTimestamp.IsZero():
		return stateDeleting
	case ws.Suspend:
		return stateSuspended
	case meta.IsStatusConditionTrue(conditions, v1beta1.ConditionInferenceReady) && !lacksEndpoint(conditions):
		return stateReady
	case ws.Status.State == v1beta1.StateReady || ws.Status.State == v1beta1.StateNotReady:
		return stateUnready
	case meta.IsStatusConditionTrue(conditions, v1beta1.ConditionStalled):
		return stateStalled
	default:
		return stateStarting
	}
}

// lacksEndpoint reports whether no client reaches an engine that answers.
func lacksEndpoint(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == v1beta1.ReasonNoEndpoint
}
