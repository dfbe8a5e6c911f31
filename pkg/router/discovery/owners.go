// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// name identifies an object.
type name struct{ namespace, name string }

// Owners returns the owners of models: each InferenceSet with its Workspaces, and each Workspace without a set. A
// Workspace belongs to a set only if the set is its controller. If a label were enough, any Workspace could join the
// set.
func Owners(workspaces []v1beta1.Workspace, sets []v1beta1.InferenceSet, slices []discoveryv1.EndpointSlice) []models.Owner {
	addresses := map[name][]string{}
	for i := range slices {
		slice := &slices[i]
		service := name{slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]}
		addresses[service] = append(addresses[service], ready(slice)...)
	}
	bySet := map[string]*family{}
	out := make([]models.Owner, 0, len(workspaces)+len(sets))
	for i := range sets {
		bySet[string(sets[i].UID)] = familyOf(&sets[i])
	}
	for i := range workspaces {
		ws := &workspaces[i]
		if ws.Inference == nil {
			continue
		}
		replicas := []string(nil)
		if ws.Status.Endpoint != nil { // otherwise, a Service of this name may belong to something else
			replicas = addresses[name{ws.Namespace, ws.Name}]
		}
		if controller := metav1.GetControllerOf(ws); controller != nil {
			if set := bySet[string(controller.UID)]; set != nil && set.Namespace == ws.Namespace {
				set.join(ws, replicas)
				continue
			}
		}
		alone := models.Owner{
			Namespace: ws.Namespace, Name: ws.Name, Kind: "Workspace", Created: ws.CreationTimestamp.Time,
			Names: served(ws), Replicas: replicas, Problem: problem(ws.Status.Conditions, ws.Generation),
		}
		alone.Loading = unserved(alone.Names, loading(ws))
		if len(replicas) == 0 {
			alone.Loading = unserved(alone.Names, loading(ws), adaptersOf(ws.Inference))
		}
		out = append(out, alone)
	}
	for i := range sets {
		out = append(out, bySet[string(sets[i].UID)].owner())
	}
	return out
}

// family is a set with its Workspaces.
type family struct {
	models.Owner
	// own is the number of names of the set itself.
	own int
	// adapters are the adapters of the set's template.
	adapters []string
	// members has the names and the replicas of each Workspace.
	members []member
}

type member struct{ names, replicas, loading []string }

// owner returns the set as the owner of its names. A replica with another template, or without an adapter yet, would
// deny that the model exists. So the names of a Workspace have only the replicas that serve them. The names of the set
// itself are the same for all its engines.
func (f *family) owner() models.Owner {
	atStart := f.adapters
	if len(f.Replicas) > 0 { // these have all adapters of their templates, apart from those in the status
		atStart = nil
	}
	lists := [][]string{atStart}
	for _, m := range f.members {
		lists = append(lists, m.loading)
	}
	f.Loading = unserved(f.Names, lists...)
	for _, name := range f.Names[f.own:] {
		some := []string{}
		for _, m := range f.members {
			if slices.Contains(m.names, name) {
				some = append(some, m.replicas...)
			}
		}
		if len(some) == len(f.Replicas) {
			continue
		}
		if f.Partial == nil {
			f.Partial = map[string][]string{}
		}
		f.Partial[name] = some
	}
	return f.Owner
}

// familyOf returns a set without Workspaces.
func familyOf(set *v1beta1.InferenceSet) *family {
	out := &family{Owner: models.Owner{
		Namespace: set.Namespace, Name: set.Name, Kind: models.KindSet, Created: set.CreationTimestamp.Time,
		Names: names(set), Problem: problem(set.Status.Conditions, set.Generation),
		IsWakeable: true, IsAsleep: set.Spec.Replicas != nil && *set.Spec.Replicas == 0, Woken: set.WokenAt(),
	}}
	out.own, out.adapters = len(out.Names), adaptersOf(set.Spec.Template.Inference)
	if canary := set.Status.Canary; canary != nil && canary.TemplateHash != "" {
		percent := int(ptr.Deref(canary.Weight, 0))
		out.Canary = &balance.Canary{
			ID: canary.TemplateHash, IsByLoad: canary.Weight == nil, Percent: percent, Split: balance.Split{Percent: percent},
		}
	}
	return out
}

// names returns the model names of a set without Workspaces: its own name and the preset's. Requests may use either to
// wake the set.
func names(set *v1beta1.InferenceSet) []string {
	out := []string{set.Name}
	if inference := set.Spec.Template.Inference; inference != nil && inference.Preset != nil && inference.Preset.Name != set.Name {
		out = append(out, inference.Preset.Name)
	}
	return out
}

// join adds a Workspace to its set.
func (f *family) join(ws *v1beta1.Workspace, replicas []string) {
	for _, each := range served(ws) {
		if !slices.Contains(f.Names, each) {
			f.Names = append(f.Names, each)
		}
	}
	f.Replicas = append(f.Replicas, replicas...)
	f.members = append(f.members, member{served(ws), replicas, loading(ws)})
	if f.Canary == nil {
		return
	}
	if ws.Labels[v1beta1.LabelTemplateHash] != f.Canary.ID {
		f.Canary.Split.Previous++
		return
	}
	f.Canary.Split.New++
	if isServing(ws) {
		f.Canary.Replicas = append(f.Canary.Replicas, replicas...)
	} else { // the label changes at once, and the pod may be replaced much later
		f.Canary.Changing = append(f.Canary.Changing, replicas...)
	}
}

// isServing reports whether the pods of a Workspace serve its current spec.
func isServing(ws *v1beta1.Workspace) bool {
	ready := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == ws.Generation
}

// served returns the model names at the endpoint. Before the endpoint exists, it returns the preset's name. Clients
// then learn that the model is starting.
func served(ws *v1beta1.Workspace) []string {
	if ws.Status.Endpoint != nil && len(ws.Status.Endpoint.Models) > 0 {
		return slices.Clone(ws.Status.Endpoint.Models)
	}
	if ws.Inference.Preset != nil {
		return []string{ws.Inference.Preset.Name}
	}
	return nil
}

// loading returns the adapters that the engine of a Workspace loads now.
func loading(ws *v1beta1.Workspace) []string {
	var out []string
	for _, adapter := range ws.Status.Adapters {
		if adapter.State == v1beta1.AdapterLoading {
			out = append(out, adapter.Name)
		}
	}
	return out
}

// adaptersOf returns the adapters that an engine loads when it starts.
func adaptersOf(inference *v1beta1.InferenceSpec) []string {
	if inference == nil {
		return nil
	}
	var out []string
	for i := range inference.Adapters {
		if source := inference.Adapters[i].Source; source != nil {
			out = append(out, source.Name)
		}
	}
	return out
}

// unserved returns the adapters in the lists that are not among the names, sorted.
func unserved(names []string, lists ...[]string) []string {
	out := slices.DeleteFunc(slices.Concat(lists...), func(name string) bool { return slices.Contains(names, name) })
	slices.Sort(out)
	return slices.Compact(out)
}

// problem returns from the conditions why an object is not ready. Stalled takes precedence over Ready.
func problem(conditions []metav1.Condition, generation int64) models.Problem {
	var out models.Problem
	for _, kind := range []string{v1beta1.ConditionStalled, v1beta1.ConditionReady} {
		found := meta.FindStatusCondition(conditions, kind)
		if found == nil || found.ObservedGeneration != generation {
			continue
		}
		isProblem := (found.Status == metav1.ConditionTrue) == (kind == v1beta1.ConditionStalled)
		if isProblem && out.Reason == "" {
			out = models.Problem{Reason: found.Reason, Message: found.Message, Stalled: kind == v1beta1.ConditionStalled}
		}
	}
	return out
}

// portHTTP is the name of the Service's port for requests.
const portHTTP = "http"

// ready returns the addresses of the ready pods of a slice. A user who can write EndpointSlices could enter any
// address. So ready leaves out addresses that belong to no pod of the namespace, loopback addresses, and link-local
// addresses such as the cloud's metadata service.
func ready(slice *discoveryv1.EndpointSlice) []string {
	port := 0
	for _, p := range slice.Ports {
		if p.Port != nil && (p.Name == nil || *p.Name == portHTTP || *p.Name == "") {
			port = int(*p.Port)
		}
	}
	if port == 0 || slice.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	var out []string
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready || !isPod(endpoint, slice.Namespace) {
			continue
		}
		for _, address := range endpoint.Addresses {
			if isRoutable(address) {
				out = append(out, net.JoinHostPort(address, strconv.Itoa(port)))
				break
			}
		}
	}
	return out
}

func isPod(endpoint *discoveryv1.Endpoint, namespace string) bool {
	target := endpoint.TargetRef
	return target != nil && target.Kind == "Pod" && target.Namespace == namespace
}

func isRoutable(address string) bool {
	parsed, err := netip.ParseAddr(address)
	return err == nil && parsed.Zone() == "" && !parsed.IsLoopback() && !parsed.IsLinkLocalUnicast() && !parsed.IsMulticast() &&
		!parsed.IsUnspecified()
}
