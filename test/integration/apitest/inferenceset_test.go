// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const setsCRDPath = "../../../charts/modelberth/files/crds/kaito.sh_inferencesets.yaml"

// installSets brings the CRD of InferenceSets in. The policies are there already.
func installSets(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(setsCRDPath)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatal(err)
	}
	if err := api.apply(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	err = api.waitUntil(t.Context(), "sets are served and their policy is heeded", func(ctx context.Context) error {
		good := setManifest(t, "v1beta1", "{name: canary}", "template: {inference: {preset: {name: m}}}")
		if err := api.Create(ctx, good, client.DryRunAll); err != nil {
			return err
		}
		bad := setManifest(t, "v1beta1", "{name: 1-canary}", "template: {inference: {preset: {name: m}}}")
		if err := api.Create(ctx, bad, client.DryRunAll); err == nil {
			return fmt.Errorf("a name that begins with a digit is admitted")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func setManifest(t *testing.T, version, metadata, spec string) *unstructured.Unstructured {
	t.Helper()
	object, err := parse(fmt.Sprintf("apiVersion: kaito.sh/%s\nkind: InferenceSet\nmetadata: %s\nspec:\n  %s\n",
		version, metadata, strings.ReplaceAll(spec, "\n", "\n  ")))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, spec)
	}
	object.SetNamespace("refused")
	return object
}

// ofTemplate puts a Workspace's manifest into the template of a set; false if a set lacks the field.
func ofTemplate(t *testing.T, row refusal) (*unstructured.Unstructured, bool) {
	t.Helper()
	ws, err := parse("metadata: {}\napiVersion: v1\nkind: List\n" + row.body)
	if err != nil {
		return nil, false // a Workspace's own decoder refuses it
	}
	inference, hasInference := ws.Object["inference"]
	resource, _ := ws.Object["resource"].(map[string]any)
	_, hasTuning := ws.Object["tuning"]
	_, hasCount := resource["count"]
	_, hasNodes := resource["preferredNodes"]
	if hasTuning || !hasInference || hasCount || hasNodes || strings.Contains(row.metadata, "name:") && !strings.Contains(row.metadata, "annotations") {
		return nil, false
	}
	template := map[string]any{"inference": inference}
	spec := map[string]any{"template": template}
	if selector, ok := resource["labelSelector"]; ok {
		spec["labelSelector"] = selector
		delete(resource, "labelSelector")
	}
	if len(resource) > 0 {
		template["resource"] = resource
	}
	if row.metadata != "" {
		var metadata map[string]any
		if err := yaml.Unmarshal([]byte(row.metadata), &metadata); err != nil {
			return nil, false
		}
		delete(metadata, "name")
		template["metadata"] = metadata
	}
	object := setManifest(t, "v1beta1", "{name: refused}", "replicas: 1")
	object.Object["spec"] = spec
	return object, true
}

// TestTemplatesAreRefusedAsWorkspacesAre puts each refused Workspace into a set: the set would create it with the
// controller's rights.
func TestTemplatesAreRefusedAsWorkspacesAre(t *testing.T) {
	installSets(t)
	asked := 0
	for _, row := range refusals() {
		set, ok := ofTemplate(t, row)
		if !ok {
			continue
		}
		asked++
		err := api.Create(t.Context(), set, client.DryRunAll)
		if err == nil {
			t.Errorf("%s: a set is admitted with\n%s%s", row.reason, row.metadata, row.body)
			continue
		}
		if !strings.Contains(err.Error(), "spec.template") && !strings.Contains(err.Error(), "spec.labelSelector") {
			t.Errorf("%s: the message names no place in a set: %v", row.reason, err)
		}
	}
	if asked < 60 {
		t.Errorf("only %d manifests were asked about", asked)
	}
}

// TestComparisonsAreKept: no field of a comparison is pruned or changed, in either version.
func TestComparisonsAreKept(t *testing.T) {
	installSets(t)
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		set := setManifest(t, version, "{name: compared}", `template: {inference: {preset: {name: m}}}
updateStrategy: {rollingUpdate: {partition: 1, canaryWeight: 5, rollback: {progressDeadline: 30m, comparison: {
  maxErrorIncrease: 100, maxTimeToFirstTokenIncrease: 1, maxTimePerOutputTokenIncrease: 10000, minRequests: 30, deadline: 1s}}}}`)
		path := []string{"spec", "updateStrategy", "rollingUpdate"}
		want, isSet, err := unstructured.NestedMap(set.Object, path...)
		if err != nil || !isSet {
			t.Fatal(err)
		}
		if err := api.Create(t.Context(), set, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		got, _, err := unstructured.NestedMap(set.Object, path...)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", version, err, diff)
		}
	}
}

func TestSetsAreRefused(t *testing.T) {
	installSets(t)
	const template = "template: {inference: {preset: {name: m}}}"
	comparison := func(field string) string {
		return "updateStrategy: {rollingUpdate: {rollback: {comparison: {" + field + "}}}}\n" + template
	}
	zoned := func(placement string) string {
		return "template: {resource: {placement: {" + placement + "}}, inference: {preset: {name: m}}}"
	}
	tests := []struct{ reason, metadata, spec, want string }{
		{"the name of a replica is longer", "{name: " + strings.Repeat("a", 47) + "}", template, `has 47 characters, but at most 46 are allowed`},
		{"a set has a template", "{name: a}", "replicas: 1", "spec.template must be set"},
		{"a template has a model", "{name: a}", "template: {}", "spec.template.inference must be set"},
		{"a template has one model", "{name: a}", "template: {inference: {}}", "set exactly one of spec.template.inference.preset and spec.template.inference.template"},
		{"no negative replicas", "{name: a}", "replicas: -1\n" + template, "spec.replicas: Invalid value: -1"},
		{"a number of replicas that nobody means", "{name: a}", "replicas: 100000\n" + template, "spec.replicas: Invalid value: 100000"},
		{"no negative number on demand", "{name: a}", "onDemandReplicas: -1\n" + template, "spec.onDemandReplicas must be between 0 and 1000"},
		{"no skew below one", "{name: a}", "zoneSpread: {maxSkew: 0}\n" + zoned("zones: [a, b]"), "spec.zoneSpread.maxSkew must be between 1 and 1000"},
		{"no skew that nobody means", "{name: a}", "zoneSpread: {maxSkew: 1001}\n" + zoned("zones: [a, b]"), "spec.zoneSpread.maxSkew must be between 1 and 1000"},
		{"an unknown action", "{name: a}", "zoneSpread: {whenUnsatisfiable: Wait}\n" + zoned("zones: [a, b]"), "spec.zoneSpread.whenUnsatisfiable must be ScheduleAnyway or DoNotSchedule"},
		{"a spread needs a placement", "{name: a}", "zoneSpread: {}\n" + template, "spec.zoneSpread needs at least two zones"},
		{"a spread needs zones", "{name: a}", "zoneSpread: {}\n" + zoned("maxHourlyPrice: '1'"), "spec.zoneSpread needs at least two zones"},
		{"one zone is too few", "{name: a}", "zoneSpread: {}\n" + zoned("zones: [a]"), "spec.zoneSpread needs at least two zones"},
		{"even if it is named twice", "{name: a}", "zoneSpread: {}\n" + zoned("zones: [a, a]"), "spec.template.resource.placement.zones names a zone twice"},
		{"no negative limit", "{name: a}", "nodeCountLimit: -1\n" + template, "spec.nodeCountLimit must be between 1 and 100000"},
		{"an unknown strategy", "{name: a}", "updateStrategy: {type: Canary}\n" + template, "spec.updateStrategy.type must be RollingUpdate or OnDelete"},
		{"settings of another strategy", "{name: a}", "updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}\n" + template, "spec.updateStrategy.rollingUpdate is for type RollingUpdate only"},
		{"a negative number", "{name: a}", "updateStrategy: {rollingUpdate: {maxUnavailable: -1}}\n" + template, "spec.updateStrategy.rollingUpdate.maxUnavailable must be a number from 0"},
		{"no percentage", "{name: a}", "updateStrategy: {rollingUpdate: {maxUnavailable: half}}\n" + template, "spec.updateStrategy.rollingUpdate.maxUnavailable must be a number from 0"},
		{"no negative time", "{name: a}", "updateStrategy: {rollingUpdate: {minReadySeconds: -1}}\n" + template, "minReadySeconds must be between 0 and 86400"},
		{"no time to answer", "{name: a}", "updateStrategy: {rollingUpdate: {rollback: {progressDeadline: 0s}}}\n" + template, "rollback.progressDeadline must be a duration of at least 1s"},
		{"a time without a unit", "{name: a}", "updateStrategy: {rollingUpdate: {rollback: {progressDeadline: '30'}}}\n" + template, "rollback.progressDeadline must be a duration of at least 1s"},
		{"no margin of errors", "{name: a}", comparison("maxErrorIncrease: 0"), "comparison.maxErrorIncrease must be a number of percentage points from 1 to 100"},
		{"no margin of the first token", "{name: a}", comparison("maxTimeToFirstTokenIncrease: -5"), "comparison.maxTimeToFirstTokenIncrease must be a percentage from 1 to 10000"},
		{"no margin of a token", "{name: a}", comparison("maxTimePerOutputTokenIncrease: 0"), "comparison.maxTimePerOutputTokenIncrease must be a percentage from 1 to 10000"},
		{"too few requests", "{name: a}", comparison("minRequests: 29"), "comparison.minRequests must be between 30 and 1000000"},
		{"no time to compare", "{name: a}", comparison("deadline: 0s"), "comparison.deadline must be a duration of at least 1s"},
		{"no percentage of requests", "{name: a}", "updateStrategy: {rollingUpdate: {canaryWeight: 101, rollback: {}}}\n" + template, "canaryWeight must be a percentage from 0 to 100"},
		{"a canary needs a previous template", "{name: a}", "updateStrategy: {rollingUpdate: {canaryWeight: 5}}\n" + template, "canaryWeight needs spec.updateStrategy.rollingUpdate.rollback"},
		{"a window has a schedule", "{name: a}", "autoUpgrade: {maintenanceWindow: {duration: 1h}}\n" + template, "spec.autoUpgrade.maintenanceWindow.schedule must be set"},
		{"a schedule has five fields", "{name: a}", "autoUpgrade: {maintenanceWindow: {schedule: daily}}\n" + template, "must be a cron expression of five fields"},
		{"a window lasts", "{name: a}", "autoUpgrade: {maintenanceWindow: {schedule: '0 3 * * 6', duration: 0h}}\n" + template, "must be a duration above zero"},
		{"autoscaling has a maximum", "{name: a}", "autoscaling: {minReplicas: 1}\n" + template, "spec.autoscaling.maxReplicas must be set"},
		{"the maximum is not below the minimum", "{name: a}", "autoscaling: {minReplicas: 3, maxReplicas: 2}\n" + template, "spec.autoscaling.maxReplicas must not be below minReplicas"},
		{"nor below zero", "{name: a}", "autoscaling: {maxReplicas: -1}\n" + template, "spec.autoscaling.maxReplicas must be between 1 and 1000"},
		{"no negative minimum", "{name: a}", "autoscaling: {minReplicas: -1, maxReplicas: 2}\n" + template, "spec.autoscaling.minReplicas must be between 0 and 1000"},
		{"an unknown metric", "{name: a}", "autoscaling: {maxReplicas: 2, targets: [{metric: Mood, value: '1'}]}\n" + template, "spec.autoscaling.targets has an unknown metric: use RequestsInFlight"},
		{"a count is a number", "{name: a}", "autoscaling: {maxReplicas: 2, targets: [{metric: WaitingRequests, value: 2s}]}\n" + template, "the value of RequestsInFlight, WaitingRequests or WaitingTokens must be a number above zero"},
		{"a count is not zero", "{name: a}", "autoscaling: {maxReplicas: 2, targets: [{metric: WaitingRequests, value: '0'}]}\n" + template, "the value of RequestsInFlight, WaitingRequests or WaitingTokens must be a number above zero"},
		{"a share is a percentage", "{name: a}", "autoscaling: {maxReplicas: 2, targets: [{metric: KVCacheUse, value: '0.7'}]}\n" + template, "the value of KVCacheUse must be a percentage"},
		{"a time has a unit", "{name: a}", "autoscaling: {maxReplicas: 2, targets: [{metric: TimeToFirstToken, value: '2'}]}\n" + template, "the value of TimeToFirstToken or TimePerOutputToken must be a duration above zero"},
		{"one target for a metric", "{name: a}", "autoscaling: {maxReplicas: 2, targets: [{metric: WaitingRequests, value: '1'}, {metric: WaitingRequests, value: '2'}]}\n" + template, "Duplicate value"},
		{"a price is a number", "{name: a}", "autoscaling: {maxReplicas: 2, maxHourlyPrice: cheap}\n" + template, "spec.autoscaling.maxHourlyPrice must be a decimal number"},
		{"a percentile", "{name: a}", "autoscaling: {maxReplicas: 2, leadPercentile: 0}\n" + template, "spec.autoscaling.leadPercentile must be between 1 and 100"},
		{"idle for a time", "{name: a}", "autoscaling: {maxReplicas: 2, idleAfter: 0s}\n" + template, "spec.autoscaling.idleAfter must be a duration above zero"},
		{"a window of a day at most", "{name: a}", "autoscaling: {maxReplicas: 2, scaleDown: {window: 25h}}\n" + template, "spec.autoscaling.scaleDown.window must be a duration of at most 24h"},
		{"a pace moves", "{name: a}", "autoscaling: {maxReplicas: 2, scaleUp: {replicas: 0}}\n" + template, "spec.autoscaling.scaleUp.replicas must be between 1 and 1000"},
		{"cron has five fields", "{name: a}", "autoscaling: {maxReplicas: 2, schedules: [{name: a, cron: daily, duration: 1h}]}\n" + template, "cron must be an expression of five fields"},
		{"a schedule lasts a week at most", "{name: a}", "autoscaling: {maxReplicas: 2, schedules: [{name: a, cron: '0 8 * * *', duration: 200h}]}\n" + template, "duration must be above zero and at most 168h"},
		{"bounds of a schedule", "{name: a}", "autoscaling: {maxReplicas: 2, schedules: [{name: a, cron: '0 8 * * *', duration: 1h, minReplicas: 3, maxReplicas: 2}]}\n" + template, "schedules: maxReplicas must not be below minReplicas"},
		{"a label is a string", "{name: a}", "template: {metadata: {labels: {a: 1}}, inference: {preset: {name: m}}}", "spec.template.metadata.labels.a"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			err := api.Create(t.Context(), setManifest(t, "v1beta1", test.metadata, test.spec), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestScalingAnnotations checks the warnings about annotations without an effect.
func TestScalingAnnotations(t *testing.T) {
	installSets(t)
	const bare = `template: {inference: {preset: {name: phi-4-mini-instruct}}}`
	for _, test := range []struct{ reason, metadata, spec, want string }{
		{
			"a policy", "{name: phi, annotations: {scaledobject.kaito.sh/auto-provision: 'true', scaledobject.kaito.sh/max-replicas: '3'}}", bare, "",
		},
		{
			"nobody asks for scaling", "{name: phi, annotations: {scaledobject.kaito.sh/threshold: '1'}}", bare,
			`annotations with the prefix scaledobject.kaito.sh/ have no effect without scaledobject.kaito.sh/auto-provision: "true": set that annotation, or remove the others`,
		},
		{
			"one of roles", "{name: phi, annotations: {scaledobject.kaito.sh/auto-provision: 'true', scaledobject.kaito.sh/decode-threshold: '1'}}", bare,
			"only the annotations auto-provision, metricName, threshold, max-replicas and metrics of scaledobject.kaito.sh/ have an effect: remove the others",
		},
		{"none", "{name: phi}", bare, ""},
	} {
		t.Run(test.reason, func(t *testing.T) {
			api.warnings.take()
			if err := api.Create(t.Context(), setManifest(t, "v1beta1", test.metadata, test.spec), client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, warning := range api.warnings.take() {
				if strings.Contains(warning, "scaledobject.kaito.sh/") {
					got = append(got, warning)
				}
			}
			if warned := strings.Join(got, "\n"); test.want == "" && warned != "" || !strings.Contains(warned, test.want) {
				t.Errorf("warnings %q, want %q", warned, test.want)
			}
		})
	}
}

// TestSetsOfKAITOAreStored has KAITO's form stored in both versions, with the defaults of the contract.
func TestSetsOfKAITOAreStored(t *testing.T) {
	installSets(t)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			set := setManifest(t, version, "{name: phi, annotations: {scaledobject.kaito.sh/auto-provision: 'true'}}", `labelSelector: {matchLabels: {apps: phi}}
replicas: 2
nodeCountLimit: 5
template:
  metadata: {creationTimestamp: null, labels: {team: a}}
  resource: {instanceType: Standard_NC24ads_A100_v4, partition: {mode: mig, profile: 2g.24gb}}
  inference: {preset: {name: phi-4-mini-instruct, accessMode: public, presetOptions: {modelAccessSecret: hf}}}
autoUpgrade: {enabled: true, maintenanceWindow: {schedule: "0 3 * * 6"}}`)
			api.warnings.take()
			if err := api.Create(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = api.Delete(context.WithoutCancel(t.Context()), set) })
			if warned := strings.Join(api.warnings.take(), "\n"); strings.Contains(warned, "scaledobject.kaito.sh/") || !strings.Contains(warned, "spec.autoUpgrade") {
				t.Errorf("warnings: %s", warned)
			}
			stored := &v1beta1.InferenceSet{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(set), stored); err != nil {
				t.Fatal(err)
			}
			rolling := stored.Spec.UpdateStrategy.RollingUpdate
			if stored.Spec.UpdateStrategy.Type != v1beta1.UpdateRolling || rolling == nil || rolling.MaxUnavailable.IntValue() != 1 {
				t.Errorf("updateStrategy is %+v", stored.Spec.UpdateStrategy)
			}
			if upgrade := stored.Spec.AutoUpgrade; upgrade.Strategy != "InPlace" || upgrade.MaintenanceWindow.Duration.Hours() != 4 {
				t.Errorf("autoUpgrade is %+v", upgrade)
			}
			if stored.Spec.Template.Metadata.Labels["team"] != "a" || stored.Spec.Template.Inference.Preset.PresetOptions.ModelAccessSecret != "hf" {
				t.Errorf("the template is %+v", stored.Spec.Template)
			}
		})
	}
}
