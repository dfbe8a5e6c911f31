// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crdgen finishes controller-gen's CRD of the Go types. It decides everything beyond markers: the rules of
// api/v1beta1/rules.yaml, the limits of 32-bit integers, the second served version, and what happens to the CRD when
// the chart is uninstalled. It must not know the meaning of a field or a rule.
package main

import (
	"flag"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	crd := flag.String("crd", "charts/modelberth/files/crds/kaito.sh_workspaces.yaml", "the CRD to finish, in place")
	rules := flag.String("rules", "api/v1beta1/rules.yaml", "the bounds and rules to add")
	template := flag.String("template", "", "the bounds and rules of Workspaces, to add for a template of them")
	flag.Parse()
	if err := run(*crd, *rules, *template); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

func run(crdPath, rulesPath, templatePath string) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := read(crdPath, &crd); err != nil {
		return err
	}
	var add additions
	if err := read(rulesPath, &add); err != nil {
		return err
	}
	if templatePath != "" {
		var workspaces additions
		if err := read(templatePath, &workspaces); err != nil {
			return err
		}
		add = add.and(workspaces.forTemplate())
	}
	if err := finish(&crd, add); err != nil {
		return fmt.Errorf("%s: %w", crdPath, err)
	}
	out, err := encode(&crd)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", crdPath, err)
	}
	return os.WriteFile(crdPath, out, 0o644)
}

func read(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// encode omits the status, because the API server owns it.
func encode(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	body, err := yaml.Marshal(struct {
		APIVersion string                                       `json:"apiVersion"`
		Kind       string                                       `json:"kind"`
		Metadata   map[string]any                               `json:"metadata"`
		Spec       apiextensionsv1.CustomResourceDefinitionSpec `json:"spec"`
	}{
		APIVersion: crd.APIVersion,
		Kind:       crd.Kind,
		Metadata:   map[string]any{"name": crd.Name, "annotations": crd.Annotations},
		Spec:       crd.Spec,
	})
	if err != nil {
		return nil, err
	}
	return append([]byte(header), body...), nil
}

const header = `# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Generated from api/v1beta1 by hack/generate.sh. DO NOT EDIT.
`
