// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// change is a stored Workspace and an edited one.
type change struct {
	reason string
	before string
	after  string
	// want is the message of the refusal, empty if the change is stored.
	want string
}

func TestChanges(t *testing.T) {
	for i, row := range changes() {
		t.Run(fmt.Sprintf("row-%02d", i), func(t *testing.T) {
			t.Log(row.reason)
			stored := manifest(t, fmt.Sprintf("row-%02d", i), row.before)
			if err := api.Create(t.Context(), stored); err != nil {
				t.Fatalf("creating what is to be changed: %v", err)
			}
			wanted := manifest(t, stored.GetName(), row.after)
			wanted.SetResourceVersion(stored.GetResourceVersion())
			got := ""
			if err := api.Update(t.Context(), wanted); err != nil {
				got = said(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// A client of Go types writes an empty struct for a missing field, and leaves empty values out. Neither is a change.
func TestSpellingIsNoChange(t *testing.T) {
	tests := []struct{ reason, before, after string }{
		{
			reason: "a Go client writes presetOptions: {}",
			before: "inference: {preset: {name: m}}",
			after:  "inference: {preset: {name: m, presetOptions: {}}}",
		},
		{
			reason: "a Go client leaves out what is empty",
			before: `inference: {preset: {name: m, presetOptions: {modelAccessSecret: ""}}, config: ""}
resource: {instanceType: "", labelSelector: {matchLabels: {}, matchExpressions: []}}`,
			after: "inference: {preset: {name: m}}\nresource: {labelSelector: {}}",
		},
		{
			reason: "an empty profile",
			before: "inference: {preset: {name: m}}\nresource: {partition: {mode: accelerator, count: 1, profile: \"\"}}",
			after:  "inference: {preset: {name: m}}\nresource: {partition: {mode: accelerator, count: 1}}",
		},
		{
			reason: "matchLabels and In with one value are the same labels",
			before: "inference: {preset: {name: m}}\nresource: {labelSelector: {matchLabels: {a: b, c: d}}}",
			after: `inference: {preset: {name: m}}
resource: {labelSelector: {matchLabels: {c: d}, matchExpressions: [{key: a, operator: In, values: [b]}]}}`,
		},
		{
			reason: "the other way round, and in another order",
			before: `inference: {preset: {name: m}}
resource: {labelSelector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: In, values: [d]}]}}`,
			after: `inference: {preset: {name: m}}
resource: {labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}}`,
		},
	}
	for i, tt := range tests {
		for direction, bodies := range map[string][2]string{"there": {tt.before, tt.after}, "back": {tt.after, tt.before}} {
			t.Run(fmt.Sprintf("spelling-%d-%s", i, direction), func(t *testing.T) {
				t.Log(tt.reason)
				stored := manifest(t, fmt.Sprintf("spelling-%d-%s", i, direction), bodies[0])
				if err := api.Create(t.Context(), stored); err != nil {
					t.Fatal(err)
				}
				wanted := manifest(t, stored.GetName(), bodies[1])
				wanted.SetResourceVersion(stored.GetResourceVersion())
				if err := api.Update(t.Context(), wanted); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// An annotation is checked when it changes, independent of other changes.
func TestAnnotationsAreCheckedWhenTheyChange(t *testing.T) {
	object := manifest(t, "annotated", "inference: {preset: {name: m}}")
	object.SetAnnotations(map[string]string{v1beta1.AnnotationPerformanceMode: "balanced", "other": "1"})
	if err := api.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ reason, key, value, want string }{
		{reason: "another annotation", key: "other", value: "2"},
		{reason: "another mode", key: v1beta1.AnnotationPerformanceMode, value: "throughput"},
		{
			reason: "no such mode", key: v1beta1.AnnotationPerformanceMode, value: "fast",
			want: `annotation kaito.sh/performance-mode is "fast": use balanced, interactivity or throughput, or remove it`,
		},
		{
			reason: "no such image family", key: v1beta1.AnnotationNodeImageFamily, value: "windows",
			want: `annotation kaito.sh/node-image-family is "windows": use ubuntu or azurelinux, or remove it`,
		},
		{
			reason: "no truth value", key: v1beta1.AnnotationUseLocalWeights, value: "yes",
			want: `annotation kaito.sh/use-local-weights is "yes": use "true" or "false", or remove it`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, tt.key, tt.value)
			err := api.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
			got := ""
			if err != nil {
				_, got, _ = strings.Cut(said(err), "denied request: ")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// The policy sees the whole name from the API server.
func TestGeneratedNames(t *testing.T) {
	stored := manifest(t, "generated", "inference: {preset: {name: m}}")
	stored.SetName("")
	stored.SetGenerateName("generated-name-that-leaves-no-room-for-the-five-characters-")
	err := api.Create(t.Context(), stored)
	if err == nil {
		t.Fatalf("a generated name of %d characters was accepted", len(stored.GetName()))
	}
	stored.SetGenerateName("generated-")
	if err := api.Create(t.Context(), stored); err != nil {
		t.Errorf("a generated name of %d characters: %v", len(stored.GetName()), err)
	}
}

func manifest(t *testing.T, name, body string) *unstructured.Unstructured {
	t.Helper()
	object, err := workspace("v1beta1", fmt.Sprintf("{name: %s, namespace: changes}", name), body)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, body)
	}
	return object
}

func changes() []change {
	const (
		preset = "inference: {preset: {name: m}}"
		tuning = "tuning: {preset: {name: m}, method: lora, input: {name: a, image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}"
		pod    = "inference: {template: {spec: {containers: [{name: a, image: b}]}}}"
	)
	return []change{
		{
			reason: "a Workspace for inference stays one",
			before: preset, after: tuning,
			want: "inference: Invalid value: inference and tuning cannot be exchanged: create a new Workspace instead",
		},
		{
			reason: "nothing is left",
			before: preset, after: "resource: {count: 1}",
			want: "inference: Invalid value: set exactly one of inference and tuning: inference to serve a model, tuning to fine-tune one",
		},
		{
			reason: "one cannot join the other",
			before: tuning, after: tuning + "\n" + preset,
			want: "inference: Invalid value: set exactly one of inference and tuning: inference to serve a model, tuning to fine-tune one",
		},
		{
			reason: "the number of machines is for good",
			before: "resource: {count: 2}\n" + preset, after: "resource: {count: 3}\n" + preset,
			want: "resource.count: Invalid value: resource.count cannot be changed, and leaving it out means 1: create a new Workspace instead",
		},
		{
			reason: "left out, it is 1",
			before: "resource: {count: 2}\n" + preset, after: preset,
			want: "resource.count: Invalid value: resource.count cannot be changed, and leaving it out means 1: create a new Workspace instead",
		},
		{
			reason: "spelt out, it is still 1", before: preset, after: "resource: {count: 1}\n" + preset,
		},
		{
			reason: "another machine type is another Workspace",
			before: "resource: {instanceType: a}\n" + preset, after: "resource: {instanceType: b}\n" + preset,
			want: "resource.instanceType: Invalid value: resource.instanceType can be removed but not changed: create a new Workspace for another machine type",
		},
		{
			reason: "a machine type may be left to the planner", before: "resource: {instanceType: a}\n" + preset, after: preset,
		},
		{
			reason: "the planner's choice may be made explicit", before: preset, after: "resource: {instanceType: a}\n" + preset,
		},
		{
			reason: "labels are on the machines",
			before: "resource: {labelSelector: {matchLabels: {a: b}}}\n" + preset,
			after:  "resource: {labelSelector: {matchLabels: {a: c}}}\n" + preset,
			want:   "resource.labelSelector: Invalid value: resource.labelSelector cannot be changed: create a new Workspace instead",
		},
		{
			reason: "one more label is a change",
			before: "resource: {labelSelector: {matchLabels: {a: b}}}\n" + preset,
			after:  "resource: {labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}}\n" + preset,
			want:   "resource.labelSelector: Invalid value: resource.labelSelector cannot be changed: create a new Workspace instead",
		},
		{
			reason: "one label less is a change",
			before: "resource: {labelSelector: {matchLabels: {a: b, c: d}}}\n" + preset,
			after:  "resource: {labelSelector: {matchLabels: {a: b}}}\n" + preset,
			want:   "resource.labelSelector: Invalid value: resource.labelSelector cannot be changed: create a new Workspace instead",
		},
		{
			reason: "without a selector it would buy",
			before: "resource: {labelSelector: {}}\n" + preset, after: preset,
			want: "resource.labelSelector: Invalid value: resource.labelSelector cannot be added or removed: create a new Workspace instead",
		},
		{
			reason: "with a selector it would stop buying",
			before: preset, after: "resource: {labelSelector: {matchLabels: {a: b}}}\n" + preset,
			want: "resource.labelSelector: Invalid value: resource.labelSelector cannot be added or removed: create a new Workspace instead",
		},
		{
			reason: "a part of the GPUs is in use",
			before: "resource: {partition: {mode: accelerator, count: 1}}\n" + preset,
			after:  "resource: {partition: {mode: accelerator, count: 2}}\n" + preset,
			want:   "resource.partition: Invalid value: resource.partition cannot be changed: create a new Workspace instead",
		},
		{
			reason: "all of the GPUs are in use",
			before: preset, after: "resource: {partition: {mode: mig, profile: 1g.10gb}}\n" + preset,
			want: "resource.partition: Invalid value: resource.partition cannot be added or removed: create a new Workspace instead",
		},
		{
			reason: "preferences and limits are free",
			before: preset,
			after:  "resource: {preferredNodes: [a], placement: {zones: [b], maxHourlyPrice: \"1\"}}\nsuspend: true\n" + preset,
		},
		{
			reason: "another model is another Workspace",
			before: preset, after: "inference: {preset: {name: other}}",
			want: "inference.preset.name: Invalid value: inference.preset.name cannot be changed: create a new Workspace for another model",
		},
		{
			reason: "a token is part of the preset",
			before: "inference: {preset: {name: m, presetOptions: {modelAccessSecret: a}}}",
			after:  "inference: {preset: {name: m, presetOptions: {modelAccessSecret: b}}}",
			want: "inference.preset.presetOptions.modelAccessSecret: Invalid value: inference.preset.presetOptions.modelAccessSecret cannot be changed" +
				" once set: change the contents of the Secret, or create a new Workspace",
		},
		{
			reason: "a token can be handed in, when the condition has asked for it",
			before: preset, after: "inference: {preset: {name: m, presetOptions: {modelAccessSecret: a}}}",
		},
		{
			reason: "what is ignored may go, as the warning says",
			before: "inference: {preset: {name: m, accessMode: private, presetOptions: {image: a, imagePullSecrets: [b]}}}",
			after:  preset,
		},
		{
			reason: "config, adapters, engine, objectives and pod are free",
			before: preset,
			after: `inference: {preset: {name: m}, config: a, adapters: [{source: {name: a, image: b}}], engine: {args: {a: b}},
  objectives: {concurrency: 2}, pod: {labels: {a: b}}}`,
		},
		{
			reason: "a model does not become a pod",
			before: preset, after: pod,
			want: "inference: Invalid value: inference.preset and inference.template cannot be exchanged: create a new Workspace instead",
		},
		{
			reason: "a pod does not become a model",
			before: pod, after: preset,
			want: "inference: Invalid value: inference.preset and inference.template cannot be exchanged: create a new Workspace instead",
		},
		{
			reason: "a model cannot get a pod as well",
			before: preset, after: "inference: {preset: {name: m}, template: {spec: {containers: [{name: a, image: b}]}}}",
			want: "inference: Invalid value: set exactly one of inference.preset and inference.template: preset to name a model, template to bring your own pod",
		},
		{
			reason: "a template may change",
			before: pod, after: "inference: {template: {spec: {containers: [{name: a, image: c}]}}}",
		},
		{
			reason: "but not into what no pod can be made from",
			before: pod, after: "inference: {template: {spec: {containers: [{name: a}]}}}",
			want: "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: " +
				"inference.template.spec has a container without an image: set image for every container",
		},
		{
			reason: "another model to tune is another job",
			before: tuning,
			after:  "tuning: {preset: {name: other}, method: lora, input: {name: a, image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.preset.name: Invalid value: tuning.preset.name cannot be changed: create a new Workspace for another model",
		},
		{
			reason: "a token is part of the preset",
			before: "tuning: {preset: {name: m, presetOptions: {modelAccessSecret: a}}, method: lora, input: {image: a}, output: {volumeSource: {}}}",
			after:  "tuning: {preset: {name: m, presetOptions: {modelAccessSecret: b}}, method: lora, input: {image: a}, output: {volumeSource: {}}}",
			want: "tuning.preset.presetOptions.modelAccessSecret: Invalid value: tuning.preset.presetOptions.modelAccessSecret cannot be changed" +
				" once set: change the contents of the Secret, or create a new Workspace",
		},
		{
			reason: "another method is another job",
			before: tuning,
			after:  "tuning: {preset: {name: m}, method: qlora, input: {name: a, image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.method: Invalid value: tuning.method cannot be changed: create a new Workspace instead",
		},
		{
			reason: "other data is another job",
			before: tuning,
			after:  "tuning: {preset: {name: m}, method: lora, input: {name: b, image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.input.name: Invalid value: tuning.input.name cannot be changed: create a new Workspace instead",
		},
		{
			reason: "the method in another case, another place for data and result",
			before: tuning,
			after:  "tuning: {preset: {name: m}, method: LORA, input: {name: a, image: registry.example/data:2}, output: {volumeSource: {hostPath: {path: /a}}}}",
		},
	}
}
