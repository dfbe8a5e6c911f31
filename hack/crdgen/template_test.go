// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestForTemplate(t *testing.T) {
	const workspaces = `
bounds:
- {at: "resource.labelSelector.matchLabels", maxProperties: 32}
- {at: "tuning.config", maxLength: 5}
rules:
- {at: "", rule: "has(self.inference) != has(self.tuning)", message: "set one of inference and tuning"}
- {at: "resource.count", rule: "self >= 1", message: "resource.count must be above 0"}
- {at: "resource.labelSelector", rule: "has(self.matchLabels)", message: "resource.labelSelector has none (resource.labelSelector.matchLabels)"}
- {at: "resource.partition", rule: "self == oldSelf", message: "resource.partition cannot be changed"}
- {at: "inference.engine.args", rule: "size(self) < 9", message: "inference.engine.args has too many: use inference.config"}
`
	const want = `
bounds:
- {at: "spec.labelSelector.matchLabels", maxProperties: 32}
rules:
- {at: "spec.labelSelector", rule: "has(self.matchLabels)", message: "spec.labelSelector has none (spec.labelSelector.matchLabels)"}
- {at: "spec.template.inference.engine.args", rule: "size(self) < 9", message: "spec.template.inference.engine.args has too many: use spec.template.inference.config"}
`
	var given, wanted additions
	for text, into := range map[string]*additions{workspaces: &given, want: &wanted} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(wanted, given.forTemplate()); diff != "" {
		t.Errorf("rules for a template (-want +got):\n%s", diff)
	}
}
