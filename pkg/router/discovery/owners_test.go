// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/models"
)

func workspace(name string, controller *v1beta1.InferenceSet, served ...string) v1beta1.Workspace {
	ws := v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1, 0))}}
	ws.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "preset"}}
	if len(served) > 0 {
		ws.Status.Endpoint = &v1beta1.Endpoint{Models: served}
	}
	if controller != nil {
		ws.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(controller, v1beta1.GroupVersion().WithKind(v1beta1.InferenceSetKind))}
	}
	return ws
}

// slice returns an EndpointSlice with a ready pod at each address.
func slice(service string, addresses ...string) discoveryv1.EndpointSlice {
	out := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports:      []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(5000))}, {Name: new("kv-events"), Port: new(int32(5557))}},
	}
	for _, address := range addresses {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "a"},
		})
	}
	return out
}

func TestOwners(t *testing.T) {
	set := &v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "set", UID: "u", CreationTimestamp: metav1.NewTime(time.Unix(1, 0))}}
	at := time.Unix(1, 0)
	stranger := workspace("stranger", nil, "set", "phi")
	stranger.Labels = map[string]string{v1beta1.LabelInferenceSet: "set"}
	starting := workspace("ws", nil)
	starting.Status.Conditions = []metav1.Condition{
		{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Pending"},
		{Type: v1beta1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Quota", Message: "ask"},
	}
	notReady := slice("ws", "10.0.0.1", "10.0.0.2")
	notReady.Endpoints[0].Conditions.Ready = new(false)
	forged := slice("ws", "10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "224.0.0.1", "fe80::1", "0.0.0.0", "evil.example")
	forged.Endpoints[0].TargetRef = nil
	foreign := slice("ws", "10.0.0.1")
	foreign.Endpoints[0].TargetRef.Namespace = "b"
	owner := func(kind, name string, names, replicas []string) models.Owner {
		isSet := kind == "InferenceSet"
		return models.Owner{Namespace: "a", Name: name, Kind: kind, Created: at, Names: names, Replicas: replicas, IsWakeable: isSet}
	}
	atZero := *set
	atZero.Spec.Replicas = new(int32(0))
	sleeping := owner("InferenceSet", "set", []string{"set"}, nil)
	sleeping.IsAsleep = true
	asleep := owner("InferenceSet", "set", []string{"set"}, nil)
	wanted := atZero
	wanted.Annotations = map[string]string{v1beta1.AnnotationWake: at.UTC().Format(time.RFC3339)}
	woken := sleeping
	woken.Woken = at
	nonsense := atZero
	nonsense.Annotations = map[string]string{v1beta1.AnnotationWake: "now"}
	ofPreset := atZero
	ofPreset.Spec.Template.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "phi"}}
	sleepingPreset := owner("InferenceSet", "set", []string{"set", "phi"}, nil)
	sleepingPreset.IsAsleep = true
	stalled := owner("Workspace", "ws", []string{"preset"}, nil)
	stalled.Problem = models.Problem{Reason: "Quota", Message: "ask", Stalled: true}
	one := func(s discoveryv1.EndpointSlice) []discoveryv1.EndpointSlice { return []discoveryv1.EndpointSlice{s} }
	ready := workspace("ws", nil, "phi", "adapter")
	onTrial := *set
	onTrial.Status.Canary = &v1beta1.CanaryStatus{TemplateHash: "new", Weight: new(int32(5))}
	labelled := func(name, hash string) v1beta1.Workspace {
		out := workspace(name, set, "set")
		out.Labels, out.Generation = map[string]string{v1beta1.LabelTemplateHash: hash}, 2
		out.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2}}
		return out
	}
	starts, unseen := labelled("w2", "new"), labelled("w2", "new")
	starts.Status.Conditions[0].Status = metav1.ConditionFalse
	unseen.Generation = 3
	unknown := labelled("w2", "new")
	unknown.Status.Conditions = nil
	split := owner("InferenceSet", "set", []string{"set"}, []string{"10.0.0.1:5000", "10.0.0.2:5000", "10.0.0.3:5000"})
	split.Canary = &balance.Canary{ID: "new", Replicas: []string{"10.0.0.2:5000"}, Percent: 5, Split: balance.Split{New: 1, Previous: 2, Percent: 5}}
	changing := split
	changing.Canary = &balance.Canary{ID: "new", Changing: split.Canary.Replicas, Percent: 5, Split: split.Canary.Split}
	three := []discoveryv1.EndpointSlice{slice("w1", "10.0.0.1"), slice("w2", "10.0.0.2"), slice("w3", "10.0.0.3")}
	compared := *set
	compared.Status.Canary = &v1beta1.CanaryStatus{TemplateHash: "new"}
	byLoad := split
	byLoad.Canary = &balance.Canary{ID: "new", Replicas: []string{"10.0.0.2:5000"}, IsByLoad: true, Split: balance.Split{New: 1, Previous: 2}}
	abroad := workspace("ws", set, "set")
	abroad.Namespace = "b"
	alone := owner("Workspace", "ws", []string{"set"}, nil)
	alone.Namespace = "b"
	template := workspace("ws", nil)
	template.Inference = nil
	partly := owner("InferenceSet", "set", []string{"set", "phi", "lora"}, []string{"10.0.0.1:5000", "10.0.0.2:5000"})
	partly.Partial = map[string][]string{"lora": {"10.0.0.2:5000"}}
	nowhere := owner("InferenceSet", "set", []string{"set", "phi", "lora"}, []string{"10.0.0.1:5000"})
	nowhere.Partial = map[string][]string{"lora": {}}
	everywhere := owner("InferenceSet", "set", []string{"set", "phi", "lora"}, []string{"10.0.0.1:5000", "10.0.0.2:5000"})
	loads := func(ws v1beta1.Workspace, names ...string) v1beta1.Workspace {
		for _, name := range names {
			ws.Status.Adapters = append(ws.Status.Adapters, v1beta1.AdapterStatus{Name: name, State: v1beta1.AdapterLoading})
		}
		ws.Status.Adapters = append(ws.Status.Adapters, v1beta1.AdapterStatus{Name: "failed", State: v1beta1.AdapterFailed})
		return ws
	}
	adapted := *set
	adapted.Spec.Template.Inference = &v1beta1.InferenceSpec{Adapters: []v1beta1.AdapterSpec{
		{Source: &v1beta1.DataSource{Name: "lora"}}, {}, {Source: &v1beta1.DataSource{Name: "b"}},
	}}
	expecting := owner("InferenceSet", "set", []string{"set"}, nil)
	expecting.Loading = []string{"b", "lora"}
	loadingOne := owner("InferenceSet", "set", []string{"set", "phi", "lora"}, partly.Replicas)
	loadingOne.Loading, loadingOne.Partial = []string{"next"}, partly.Partial
	loadingAlone := owner("Workspace", "ws", []string{"phi", "adapter"}, []string{"10.0.0.1:5000"})
	loadingAlone.Loading = []string{"next"}
	startingAlone := owner("Workspace", "ws", []string{"phi", "adapter"}, nil)
	startingAlone.Loading = []string{"b", "lora", "next"}
	restarts := loads(ready, "next", "adapter")
	restarts.Inference = adapted.Spec.Template.Inference
	cases := []struct {
		reason     string
		workspaces []v1beta1.Workspace
		sets       []v1beta1.InferenceSet
		slices     []discoveryv1.EndpointSlice
		want       []models.Owner
	}{
		{"a Workspace with its adapters", []v1beta1.Workspace{ready}, nil, one(slice("ws", "10.0.0.1", "fd00::1")), []models.Owner{owner("Workspace", "ws", []string{"phi", "adapter"}, []string{"10.0.0.1:5000", "[fd00::1]:5000"})}},
		{
			"the Workspaces of a set are one owner",
			[]v1beta1.Workspace{workspace("w1", set, "set", "phi"), workspace("w2", set, "set", "phi")},
			[]v1beta1.InferenceSet{*set},
			[]discoveryv1.EndpointSlice{slice("w1", "10.0.0.1"), slice("w2", "10.0.0.2")},
			[]models.Owner{owner("InferenceSet", "set", []string{"set", "phi"}, []string{"10.0.0.1:5000", "10.0.0.2:5000"})},
		},
		{
			"an adapter that one replica has loaded",
			[]v1beta1.Workspace{workspace("w1", set, "phi"), workspace("w2", set, "phi", "lora")},
			[]v1beta1.InferenceSet{*set},
			[]discoveryv1.EndpointSlice{slice("w1", "10.0.0.1"), slice("w2", "10.0.0.2")},
			[]models.Owner{partly},
		},
		{
			"an adapter whose only replica is not ready",
			[]v1beta1.Workspace{workspace("w1", set, "phi"), workspace("w2", set, "phi", "lora")},
			[]v1beta1.InferenceSet{*set},
			one(slice("w1", "10.0.0.1")),
			[]models.Owner{nowhere},
		},
		{
			"a ready Workspace loads an adapter",
			[]v1beta1.Workspace{loads(ready, "next", "adapter")},
			nil, one(slice("ws", "10.0.0.1")),
			[]models.Owner{loadingAlone},
		},
		{
			"a Workspace without a ready pod will load its adapters",
			[]v1beta1.Workspace{restarts},
			nil, nil,
			[]models.Owner{startingAlone},
		},
		{
			"two replicas load an adapter that none has, and one that one has",
			[]v1beta1.Workspace{loads(workspace("w1", set, "phi"), "next", "lora"), loads(workspace("w2", set, "phi", "lora"), "next")},
			[]v1beta1.InferenceSet{adapted},
			[]discoveryv1.EndpointSlice{slice("w1", "10.0.0.1"), slice("w2", "10.0.0.2")},
			[]models.Owner{loadingOne},
		},
		{"a set without replicas will load its adapters", nil, []v1beta1.InferenceSet{adapted}, nil, []models.Owner{expecting}},
		{
			"an adapter that all replicas have loaded",
			[]v1beta1.Workspace{workspace("w1", set, "phi", "lora"), workspace("w2", set, "phi", "lora")},
			[]v1beta1.InferenceSet{*set},
			[]discoveryv1.EndpointSlice{slice("w1", "10.0.0.1"), slice("w2", "10.0.0.2")},
			[]models.Owner{everywhere},
		},
		{
			"a canary of a new template",
			[]v1beta1.Workspace{workspace("w1", set, "set"), labelled("w2", "new"), labelled("w3", "former")},
			[]v1beta1.InferenceSet{onTrial},
			[]discoveryv1.EndpointSlice{slice("w1", "10.0.0.1"), slice("w2", "10.0.0.2"), slice("w3", "10.0.0.3")},
			[]models.Owner{split},
		},
		{
			"two templates without a weight",
			[]v1beta1.Workspace{workspace("w1", set, "set"), labelled("w2", "new"), labelled("w3", "former")},
			[]v1beta1.InferenceSet{compared},
			[]discoveryv1.EndpointSlice{slice("w1", "10.0.0.1"), slice("w2", "10.0.0.2"), slice("w3", "10.0.0.3")},
			[]models.Owner{byLoad},
		},
		{
			"a former pod that serves until the new one is ready",
			[]v1beta1.Workspace{workspace("w1", set, "set"), starts, labelled("w3", "former")},
			[]v1beta1.InferenceSet{onTrial},
			three,
			[]models.Owner{changing},
		},
		{
			"an edit that the Workspace's controller has not seen",
			[]v1beta1.Workspace{workspace("w1", set, "set"), unseen, labelled("w3", "former")},
			[]v1beta1.InferenceSet{onTrial},
			three,
			[]models.Owner{changing},
		},
		{
			"a Workspace without conditions",
			[]v1beta1.Workspace{workspace("w1", set, "set"), unknown, labelled("w3", "former")},
			[]v1beta1.InferenceSet{onTrial},
			three,
			[]models.Owner{changing},
		},
		{"a set without replicas keeps its name", nil, []v1beta1.InferenceSet{*set}, nil, []models.Owner{asleep}},
		{"a set at zero sleeps", nil, []v1beta1.InferenceSet{atZero}, nil, []models.Owner{sleeping}},
		{"a set that a router woke", nil, []v1beta1.InferenceSet{wanted}, nil, []models.Owner{woken}},
		{"a wake that is no time", nil, []v1beta1.InferenceSet{nonsense}, nil, []models.Owner{sleeping}},
		{"a set at zero keeps the name of its preset", nil, []v1beta1.InferenceSet{ofPreset}, nil, []models.Owner{sleepingPreset}},
		{"a label alone joins no set", []v1beta1.Workspace{stranger}, []v1beta1.InferenceSet{*set}, one(slice("stranger", "10.0.0.9")), []models.Owner{owner("Workspace", "stranger", []string{"set", "phi"}, []string{"10.0.0.9:5000"}), asleep}},
		{"a Workspace of another namespace joins no set", []v1beta1.Workspace{abroad}, []v1beta1.InferenceSet{*set}, nil, []models.Owner{alone, asleep}},
		{"a Workspace that waits for a person", []v1beta1.Workspace{starting}, nil, nil, []models.Owner{stalled}},
		{"a Service of somebody else", []v1beta1.Workspace{starting}, nil, one(slice("ws", "10.0.0.1")), []models.Owner{stalled}},
		{"pods that are not ready", []v1beta1.Workspace{ready}, nil, one(notReady), []models.Owner{owner("Workspace", "ws", []string{"phi", "adapter"}, []string{"10.0.0.2:5000"})}},
		{"addresses that no pod has", []v1beta1.Workspace{ready}, nil, one(forged), []models.Owner{owner("Workspace", "ws", []string{"phi", "adapter"}, nil)}},
		{"a pod of another namespace", []v1beta1.Workspace{ready}, nil, one(foreign), []models.Owner{owner("Workspace", "ws", []string{"phi", "adapter"}, nil)}},
		{"the headless Service, whose pods need not be ready", []v1beta1.Workspace{ready}, nil, one(slice("ws-headless", "10.0.0.1")), []models.Owner{owner("Workspace", "ws", []string{"phi", "adapter"}, nil)}},
		{"a tuning job serves nothing", []v1beta1.Workspace{template}, nil, nil, []models.Owner{}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Owners(c.workspaces, c.sets, c.slices)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestKept: what the router keeps of the objects is enough to find the canaries, the adapters and the time of a wake.
func TestKept(t *testing.T) {
	set := &v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "set", UID: "u"}}
	set.Status.Canary = &v1beta1.CanaryStatus{TemplateHash: "new", Weight: new(int32(5))}
	set.Annotations = map[string]string{v1beta1.AnnotationWake: "2026-01-31T12:00:00Z", "other": "x"}
	ws := workspace("ws", set, "set")
	ws.Labels, ws.Generation = map[string]string{v1beta1.LabelTemplateHash: "new", "team": "a"}, 2
	ws.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2}}
	ws.Status.Adapters = []v1beta1.AdapterStatus{{Name: "lora", State: v1beta1.AdapterLoading, Message: "long"}}
	ws.Inference.Adapters = []v1beta1.AdapterSpec{{Source: &v1beta1.DataSource{Name: "later", Repository: "org/later"}}, {}}
	set.Spec.Template.Inference = ws.Inference
	anySet, setErr := keepSet(set)
	anyWorkspace, workspaceErr := keepWorkspace(&ws)
	keptSet, isSet := anySet.(*v1beta1.InferenceSet)
	keptWorkspace, isWorkspace := anyWorkspace.(*v1beta1.Workspace)
	if setErr != nil || workspaceErr != nil || !isSet || !isWorkspace {
		t.Fatal(setErr, workspaceErr, anySet, anyWorkspace)
	}
	slices := []discoveryv1.EndpointSlice{slice("ws", "10.0.0.1")}
	whole := Owners([]v1beta1.Workspace{ws}, []v1beta1.InferenceSet{*set}, slices)
	kept := Owners([]v1beta1.Workspace{*keptWorkspace}, []v1beta1.InferenceSet{*keptSet}, slices)
	if diff := cmp.Diff(whole, kept); diff != "" {
		t.Errorf("(-whole +kept):\n%s", diff)
	}
	if len(kept) != 1 || !kept[0].Canary.Has("10.0.0.1:5000") || kept[0].Woken.IsZero() || len(kept[0].Loading) != 1 {
		t.Errorf("the owners %+v have no canary, no adapter, or no time", kept)
	}
	atZero := Owners(nil, []v1beta1.InferenceSet{*keptSet}, nil)
	if diff := cmp.Diff([]string{"later"}, atZero[0].Loading); diff != "" {
		t.Errorf("adapters of the set without replicas (-want +got):\n%s", diff)
	}
}
