// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// ruleSchema names the schema in findings.
const ruleSchema = "schema"

// mostMessages is the most messages about one object.
const mostMessages = 5

// kind is a CustomResourceDefinition.
type kind struct {
	resource string
	// stored is the storage version.
	stored   string
	versions map[string]*version
}

// version is the schema of one version, compiled as in the API server.
type version struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	rules      *schemacel.Validator
}

// refusal is a rule's name and message.
type refusal struct{ rule, message string }

func newKind(definition *apiextensionsv1.CustomResourceDefinition) (*kind, error) {
	out := &kind{resource: definition.Spec.Names.Plural, versions: map[string]*version{}}
	for i := range definition.Spec.Versions {
		each := &definition.Spec.Versions[i]
		compiled, err := newVersion(each)
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", each.Name, err)
		}
		out.versions[each.Name] = compiled
		if each.Storage {
			out.stored = each.Name
		}
	}
	return out, nil
}

func newVersion(of *apiextensionsv1.CustomResourceDefinitionVersion) (*version, error) {
	if of.Schema == nil || of.Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("it has no schema")
	}
	var internal apiextensions.JSONSchemaProps
	root := of.Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(root, &internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, err
	}
	values, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		return nil, err
	}
	return &version{
		structural: structural, values: values, rules: schemacel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// stored returns the object as the API server reads it with this schema, and the paths of its fields that the schema
// lacks.
func (v *version) stored(object *unstructured.Unstructured) (*unstructured.Unstructured, []string) {
	out := object.DeepCopy()
	lost := pruning.PruneWithOptions(out.Object, v.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(out.Object, v.structural)
	defaulting.Default(out.Object, v.structural)
	slices.Sort(lost)
	return out, lost
}

// ofNew returns the refusals of a new object.
func (v *version) ofNew(ctx context.Context, object *unstructured.Unstructured) []refusal {
	problems := validation.ValidateCustomResource(nil, object.Object, v.values)
	problems = append(problems, objectmeta.Validate(nil, object.Object, v.structural, false)...)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, v.structural, object.Object)...)
	if len(problems) == 0 && v.rules != nil {
		problems, _ = v.rules.Validate(ctx, nil, v.structural, object.Object, nil, celconfig.RuntimeCELCostBudget)
	}
	return worded(problems)
}

// ofUpdate returns the refusals of a write. As in the API server, unchanged values are not validated again.
func (v *version) ofUpdate(ctx context.Context, updated, old *unstructured.Unstructured) []refusal {
	same := common.NewCorrelatedObject(updated.Object, old.Object, &model.Structural{Structural: v.structural})
	problems := validation.ValidateCustomResourceUpdate(nil, updated.Object, old.Object, v.values, validation.WithRatcheting(same))
	problems = append(problems, objectmeta.Validate(nil, updated.Object, v.structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, v.structural, old.Object)) == 0 {
		problems = append(problems, listtype.ValidateListSetsAndMaps(nil, v.structural, updated.Object)...)
	}
	if len(problems) == 0 && v.rules != nil {
		problems, _ = v.rules.Validate(ctx, nil, v.structural, updated.Object, old.Object, celconfig.RuntimeCELCostBudget,
			schemacel.WithRatcheting(same))
	}
	return worded(problems)
}

// worded returns errors as refusals, each text once.
func worded(problems field.ErrorList) []refusal {
	var out []refusal
	for _, problem := range problems {
		next := refusal{ruleSchema, strings.Join(strings.Fields(problem.Error()), " ")}
		if !slices.Contains(out, next) {
			out = append(out, next)
		}
	}
	if more := len(out) - mostMessages; more > 0 {
		out = append(out[:mostMessages], refusal{ruleSchema, fmt.Sprintf("and %d more", more)})
	}
	return out
}

// joined returns a list of paths for a sentence.
func joined(paths []string) string {
	if more := len(paths) - mostMessages; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:mostMessages], ", "), more)
	}
	return strings.Join(paths, ", ")
}
