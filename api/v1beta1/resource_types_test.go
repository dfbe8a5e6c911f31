// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEffectiveNodeSource(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"apps": "llm"}}
	tests := []struct {
		reason   string
		resource ResourceSpec
		want     NodeSource
	}{
		{
			reason: "a model's name alone leaves everything to the planner",
			want:   NodeSourceAny,
		},
		{
			reason:   "a selector alone means nodes that are there",
			resource: ResourceSpec{LabelSelector: selector},
			want:     NodeSourceExisting,
		},
		{
			reason:   "an empty selector selects every node that is there",
			resource: ResourceSpec{LabelSelector: &metav1.LabelSelector{}},
			want:     NodeSourceExisting,
		},
		{
			reason:   "a machine type is there to be bought",
			resource: ResourceSpec{LabelSelector: selector, InstanceType: "Standard_NC24ads_A100_v4"},
			want:     NodeSourceAny,
		},
		{
			reason:   "machine types are there to be bought",
			resource: ResourceSpec{LabelSelector: selector, Placement: &PlacementSpec{InstanceTypes: []string{"Standard_NC24ads_A100_v4"}}},
			want:     NodeSourceAny,
		},
		{
			reason:   "a way to pay is about buying",
			resource: ResourceSpec{LabelSelector: selector, Placement: &PlacementSpec{CapacityTypes: []CapacityType{CapacitySpot}}},
			want:     NodeSourceAny,
		},
		{
			reason: "a limit beside a machine type changes nothing",
			resource: ResourceSpec{
				LabelSelector: selector, InstanceType: "Standard_NC24ads_A100_v4", Placement: &PlacementSpec{MaxHourlyPrice: "5"},
			},
			want: NodeSourceAny,
		},
		{
			reason: "what was asked for wins over a machine type",
			resource: ResourceSpec{
				InstanceType: "Standard_NC24ads_A100_v4", Placement: &PlacementSpec{NodeSource: NodeSourceExisting},
			},
			want: NodeSourceExisting,
		},
		{
			reason:   "what was asked for wins over a selector",
			resource: ResourceSpec{LabelSelector: selector, Placement: &PlacementSpec{NodeSource: NodeSourceProvisioned}},
			want:     NodeSourceProvisioned,
		},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			if got := tt.resource.EffectiveNodeSource(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// Whatever limits a manifest for existing nodes sets, it buys nothing: they are limits, not consent.
func TestLimitNeverTurnsBuyingOn(t *testing.T) {
	limits := map[string]func(*PlacementSpec){
		"empty placement": func(*PlacementSpec) {},
		"maxHourlyPrice":  func(p *PlacementSpec) { p.MaxHourlyPrice = "5" },
		"accelerators":    func(p *PlacementSpec) { p.Accelerators = []string{"H100-80"} },
		"zones":           func(p *PlacementSpec) { p.Zones = []string{"westeurope-1"} },
		"nodeClassRef":    func(p *PlacementSpec) { p.NodeClassRef = &NodeClassReference{Group: "g", Kind: "K", Name: "n"} },
	}
	consents := []string{"nodeSource", "instanceTypes", "capacityTypes"}
	var fields []string
	for field := range reflect.TypeFor[PlacementSpec]().Fields() {
		fields = append(fields, field.Name)
	}
	if len(fields) != len(limits)-1+len(consents) {
		t.Errorf("placement has the fields %q: decide for each whether it is a limit or turns buying on", fields)
	}
	names := slices.Sorted(maps.Keys(limits))
	for combination := 1; combination < 1<<len(names); combination++ {
		placement := &PlacementSpec{}
		for i, name := range names {
			if combination&(1<<i) != 0 {
				limits[name](placement)
			}
		}
		resource := ResourceSpec{LabelSelector: &metav1.LabelSelector{}, Placement: placement}
		if got := resource.EffectiveNodeSource(); got != NodeSourceExisting {
			t.Errorf("a labelSelector %s: got %s, want %s", chosen(names, combination), got, NodeSourceExisting)
		}
	}
}

// kaitoFields sets the fields that KAITO has, one each, beside instanceType and labelSelector.
func kaitoFields() map[string]func(*Workspace) {
	inference := func(set func(*InferenceSpec)) func(*Workspace) {
		return func(ws *Workspace) {
			if ws.Inference == nil {
				ws.Inference = &InferenceSpec{}
			}
			set(ws.Inference)
		}
	}
	preset := func(set func(*PresetSpec)) func(*Workspace) {
		return inference(func(i *InferenceSpec) {
			if i.Preset == nil {
				i.Preset = &PresetSpec{Name: "model"}
			}
			set(i.Preset)
		})
	}
	source := &DataSource{
		Name: "data", URLs: []string{"https://host.example/data"}, Volume: &corev1.VolumeSource{}, Image: "image",
		ImagePullSecrets: []string{"pull"},
	}
	return map[string]func(*Workspace){
		"count":          func(ws *Workspace) { ws.Resource.Count = new(2) },
		"preferredNodes": func(ws *Workspace) { ws.Resource.PreferredNodes = []string{"node"} },
		"partition mig":  func(ws *Workspace) { ws.Resource.Partition = &PartitionSpec{Mode: PartitionMIG, Profile: "1g.10gb"} },
		"partition GPUs": func(ws *Workspace) {
			ws.Resource.Partition = &PartitionSpec{Mode: PartitionAccelerator, Count: new(2)}
		},
		"accessMode":        preset(func(p *PresetSpec) { p.AccessMode = "private" }),
		"image":             preset(func(p *PresetSpec) { p.PresetOptions.Image = "image" }),
		"imagePullSecrets":  preset(func(p *PresetSpec) { p.PresetOptions.ImagePullSecrets = []string{"pull"} }),
		"modelAccessSecret": preset(func(p *PresetSpec) { p.PresetOptions.ModelAccessSecret = "token" }),
		"template":          inference(func(i *InferenceSpec) { i.Template = &corev1.PodTemplateSpec{} }),
		"config":            inference(func(i *InferenceSpec) { i.Config = "config" }),
		"adapters": inference(func(i *InferenceSpec) {
			i.Adapters = []AdapterSpec{{Source: source, Strength: new("1.0")}}
		}),
		"tuning": func(ws *Workspace) {
			ws.Tuning = &TuningSpec{
				Preset: &PresetSpec{Name: "model"}, Method: "lora", Config: "config", Input: source,
				Output: &DataDestination{Volume: &corev1.VolumeSource{}, Image: "image", ImagePushSecret: "push"},
			}
		},
		"annotations": func(ws *Workspace) {
			ws.Annotations = map[string]string{AnnotationRuntime: "transformers", AnnotationBypassResourceChecks: ""}
		},
	}
}

// Over every combination of KAITO's fields: with a selector and no machine type nothing is ever
// bought; with a machine type, or with neither, buying is allowed.
func TestBringYourOwnNeverBuys(t *testing.T) {
	selectors := map[string]*metav1.LabelSelector{
		"no selector":      nil,
		"empty selector":   {},
		"matchLabels":      {MatchLabels: map[string]string{"apps": "llm"}},
		"matchExpressions": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b"}}}},
		"reserved labels":  {MatchLabels: map[string]string{LabelWorkspace: "a"}},
	}
	fields := kaitoFields()
	names := slices.Sorted(maps.Keys(fields))
	for selected, selector := range selectors {
		for _, instanceType := range []string{"", "Standard_NC24ads_A100_v4"} {
			for combination := range 1 << len(names) {
				ws := &Workspace{Resource: ResourceSpec{LabelSelector: selector, InstanceType: instanceType}}
				for i, name := range names {
					if combination&(1<<i) != 0 {
						fields[name](ws)
					}
				}
				buys := ws.Resource.EffectiveNodeSource() != NodeSourceExisting
				if want := selector == nil || instanceType != ""; buys != want {
					t.Fatalf("%s, instanceType %q, %s: buys is %t, want %t", selected, instanceType, chosen(names, combination), buys, want)
				}
			}
		}
	}
}

// The property above depends on its list of fields: together they must set every field except ours.
func TestEveryFieldOfKAITOIsVaried(t *testing.T) {
	ws := &Workspace{Resource: ResourceSpec{LabelSelector: &metav1.LabelSelector{}, InstanceType: "type"}}
	all := kaitoFields()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		all[name](ws)
	}
	// The two modes exclude each other.
	ws.Resource.Partition = &PartitionSpec{Mode: PartitionMIG, Profile: "1g.10gb", Count: new(1)}
	got := unset(reflect.ValueOf(*ws), "")
	ours := []string{
		".inference.adapterUpdates", ".inference.adapters.path", ".inference.adapters.source.repository", ".inference.engine", ".inference.objectives", ".inference.pod", ".inference.weights", ".resource.placement", ".suspend",
		".tuning.input.repository",
	}
	// A tuning preset has the same options as the one for inference.
	got = slices.DeleteFunc(got, func(field string) bool { return strings.HasPrefix(field, ".tuning.preset.") })
	slices.Sort(got)
	if diff := cmp.Diff(ours, got); diff != "" {
		t.Errorf("fields that are ours (-), and fields that no combination sets (+):\n%s", diff)
	}
}

// unset returns the fields of this package's types that have their zero value.
func unset(value reflect.Value, at string) []string {
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if value.Kind() == reflect.Slice {
		return unset(value.Index(0), at)
	}
	if value.Kind() != reflect.Struct || value.Type().PkgPath() != reflect.TypeFor[Workspace]().PkgPath() {
		return nil
	}
	var out []string
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case name == "" || name == "-" || name == "metadata" || name == "status":
		case value.Field(i).IsZero():
			out = append(out, at+"."+name)
		default:
			out = append(out, unset(value.Field(i), at+"."+name)...)
		}
	}
	return out
}

func chosen(names []string, combination int) string {
	var out []string
	for i, name := range names {
		if combination&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return fmt.Sprintf("with %q", out)
}
