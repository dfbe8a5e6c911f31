// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// additions is the content of rules.yaml.
type additions struct {
	Bounds []bound `json:"bounds"`
	Rules  []rule  `json:"rules"`
}

// bound is the size limit of a field whose Go type cannot have a marker.
type bound struct {
	At            string `json:"at"`
	MaxLength     *int64 `json:"maxLength"`
	MaxItems      *int64 `json:"maxItems"`
	MaxProperties *int64 `json:"maxProperties"`
}

// rule is a CEL rule and its place in the schema.
type rule struct {
	At                             string `json:"at"`
	apiextensionsv1.ValidationRule `json:",inline"`
}

const (
	annotationGenerator = "controller-gen.kubebuilder.io/version"
	annotationKeep      = "helm.sh/resource-policy"
	oldVersion          = "v1alpha1"
)

// finish turns controller-gen's CRD, which has one version, into ours.
func finish(crd *apiextensionsv1.CustomResourceDefinition, add additions) error {
	if n := len(crd.Spec.Versions); n != 1 {
		return fmt.Errorf("has %d versions, want the 1 that controller-gen makes: run hack/generate.sh", n)
	}
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, b := range add.Bounds {
		if err := b.addTo(schema); err != nil {
			return err
		}
	}
	for _, r := range add.Rules {
		if err := r.addTo(schema); err != nil {
			return err
		}
	}
	visit(schema, limitInteger)
	visit(schema, shortenDescription)
	if err := mustNotRequire("", schema); err != nil {
		return err
	}

	// A tool's new version must not change the CRD in a cluster.
	delete(crd.Annotations, annotationGenerator)
	// Uninstalling the chart must not delete everybody's Workspaces and their machines.
	if crd.Annotations == nil {
		crd.Annotations = map[string]string{}
	}
	crd.Annotations[annotationKeep] = "keep"

	crd.Spec.Versions = append([]apiextensionsv1.CustomResourceDefinitionVersion{olderVersion(crd.Spec.Versions[0])},
		crd.Spec.Versions...)
	return nil
}

// olderVersion returns v1alpha1 with its original columns. The schema is the same, so that a read or write in this
// version loses nothing.
func olderVersion(stored apiextensionsv1.CustomResourceDefinitionVersion) apiextensionsv1.CustomResourceDefinitionVersion {
	old := *stored.DeepCopy()
	old.Name = oldVersion
	old.Storage = false
	old.AdditionalPrinterColumns = slices.DeleteFunc(old.AdditionalPrinterColumns,
		func(column apiextensionsv1.CustomResourceColumnDefinition) bool {
			return column.Name == "TargetNodeCount" || column.Name == "State"
		})
	return old
}

func (b bound) addTo(schema *apiextensionsv1.JSONSchemaProps) error {
	return edit(schema, b.At, func(s *apiextensionsv1.JSONSchemaProps) error {
		if s.MaxLength != nil || s.MaxItems != nil || s.MaxProperties != nil {
			return errors.New("has a bound already, from a marker: keep one of the two")
		}
		s.MaxLength, s.MaxItems, s.MaxProperties = b.MaxLength, b.MaxItems, b.MaxProperties
		return nil
	})
}

func (r rule) addTo(schema *apiextensionsv1.JSONSchemaProps) error {
	return edit(schema, r.At, func(s *apiextensionsv1.JSONSchemaProps) error {
		if r.Message == "" {
			return fmt.Errorf("a rule has no message: %s", r.Rule)
		}
		validation := r.ValidationRule
		if !strings.Contains(r.Rule, "oldSelf") {
			validation.Rule = withinBound(s, validation.Rule)
			if r.At == "" || holdsUnknownFields(s) && !strings.Contains(r.At, "[]") {
				forgive(&validation)
			}
		}
		s.XValidations = append(s.XValidations, validation)
		return nil
	})
}

// withinBound makes a rule hold for a value above its bound. An object stored before the bound existed can be so large
// that the rule exceeds the API server's cost budget. Then every write of the object would fail.
func withinBound(s *apiextensionsv1.JSONSchemaProps, rule string) string {
	for _, limit := range []*int64{s.MaxLength, s.MaxItems, s.MaxProperties} {
		if limit != nil {
			return fmt.Sprintf("size(self) > %d || (%s)", *limit, rule)
		}
	}
	return rule
}

// forgive makes a rule hold if it was false before the write.
func forgive(validation *apiextensionsv1.ValidationRule) {
	before := regexp.MustCompile(`\bself\b`).ReplaceAllString(validation.Rule, "oldSelf.value()")
	validation.Rule = fmt.Sprintf("(%s) || oldSelf.hasValue() && !(%s)", validation.Rule, before)
	validation.OptionalOldSelf = new(true)
}

// holdsUnknownFields reports whether an object, or one below it, may have fields outside the schema. The API server
// treats such an object as changed by every write, so a rule on it always applies. It compares a list as a whole, so
// objects within a list do not count.
func holdsUnknownFields(s *apiextensionsv1.JSONSchemaProps) bool {
	if ptr.Deref(s.XPreserveUnknownFields, false) {
		return true
	}
	for name := range s.Properties {
		property := s.Properties[name]
		if holdsUnknownFields(&property) {
			return true
		}
	}
	return false
}

// mustNotRequire fails if the schema requires a field of such an object. The requirement would block writes to stored
// objects, so it must be a rule instead.
func mustNotRequire(at string, s *apiextensionsv1.JSONSchemaProps) error {
	if len(s.Required) > 0 && (at == "" || holdsUnknownFields(s)) {
		return fmt.Errorf("place %q: required %v would block writes to stored objects: make them optional and add a rule",
			at, s.Required)
	}
	for name := range s.Properties {
		property := s.Properties[name]
		if err := mustNotRequire(strings.TrimPrefix(at+"."+name, "."), &property); err != nil {
			return err
		}
	}
	return nil
}

// limitInteger gives a 32-bit integer its limits. The API server does not check the format, and with one number outside
// the int32 range, clients cannot read the whole list.
func limitInteger(schema *apiextensionsv1.JSONSchemaProps) {
	if schema.Type != "integer" || schema.Format != "int32" {
		return
	}
	if schema.Minimum == nil {
		schema.Minimum = new(float64(math.MinInt32))
	}
	if schema.Maximum == nil {
		schema.Maximum = new(float64(math.MaxInt32))
	}
}

// longestDescription is the limit of a description in characters. None of ours is longer. Kubernetes' types have
// descriptions of a thousand characters, twice in each CRD, and kubectl apply must store the whole CRD in an annotation
// of at most 256 KiB.
const longestDescription = 320

// shortenDescription keeps the first sentences of a long description.
func shortenDescription(schema *apiextensionsv1.JSONSchemaProps) {
	text := schema.Description
	if len(text) <= longestDescription {
		return
	}
	sentenceEnd := regexp.MustCompile(`\.\s+[A-Z-]`)
	short := ""
	for _, at := range sentenceEnd.FindAllStringIndex(text, -1) {
		if short == "" || at[0] < longestDescription {
			short = text[:at[0]] + "."
		}
	}
	if short != "" {
		schema.Description = short
	}
}

// visit calls a function for a schema and all schemas below it.
func visit(schema *apiextensionsv1.JSONSchemaProps, do func(*apiextensionsv1.JSONSchemaProps)) {
	do(schema)
	for name, property := range schema.Properties {
		visit(&property, do)
		schema.Properties[name] = property
	}
	if schema.Items != nil {
		visit(schema.Items.Schema, do)
	}
	if schema.AdditionalProperties != nil {
		visit(schema.AdditionalProperties.Schema, do)
	}
}
