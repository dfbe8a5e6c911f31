// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"testing"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// An API server accepts only the language of the release before it for new expressions, so that it can be downgraded.
// The oldest supported one is 1.31.
func oldestLanguage() *environment.EnvSet {
	return environment.MustBaseEnvSet(version.MajorMinor(1, 30))
}

func TestRulesCompileOnTheOldestKubernetes(t *testing.T) {
	crd, err := readCRD()
	if err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(root, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	compiled := compileBelow(t, structural, "", true)
	if want := len(ruleMessages(t)); compiled != want {
		t.Errorf("compiled %d rules, the CRD has %d", compiled, want)
	}
}

func compileBelow(t *testing.T, s *structuralschema.Structural, at string, isRoot bool) int {
	t.Helper()
	compiled := 0
	if len(s.XValidations) > 0 {
		results, err := schemacel.Compile(s, model.SchemaDeclType(s, isRoot), celconfig.PerCallLimit, oldestLanguage(), schemacel.NewExpressionsEnvLoader())
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		for i, result := range results {
			compiled++
			if result.Error != nil {
				t.Errorf("%s: %v in:\n%s", at, result.Error, s.XValidations[i].Rule)
			}
		}
	}
	for name, property := range s.Properties {
		compiled += compileBelow(t, &property, at+"."+name, false)
	}
	if s.Items != nil {
		compiled += compileBelow(t, s.Items, at+"[]", false)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		compiled += compileBelow(t, s.AdditionalProperties.Structural, at+"{}", false)
	}
	return compiled
}

func TestPoliciesCompileOnTheOldestKubernetes(t *testing.T) {
	objects, err := readPolicies()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := json.Unmarshal(data, &policy); err != nil {
			t.Fatal(err)
		}
		compilePolicy(t, &policy)
	}
}

func compilePolicy(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
	t.Helper()
	compiler, err := admissioncel.NewCompositedCompiler(oldestLanguage())
	if err != nil {
		t.Fatal(err)
	}
	options := admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, variable := range policy.Spec.Variables {
		named := namedExpression{expression{text: variable.Expression, returns: []*cel.Type{cel.AnyType, cel.DynType}}, variable.Name}
		if result := compiler.CompileAndStoreVariable(named, options, environment.NewExpressions); result.Error != nil {
			t.Errorf("%s: variable %s: %v", policy.Name, variable.Name, result.Error)
		}
	}
	check := func(text string, returns *cel.Type) {
		t.Helper()
		result := compiler.CompileCELExpression(expression{text: text, returns: []*cel.Type{returns}}, options, environment.NewExpressions)
		if result.Error != nil {
			t.Errorf("%s: %v in:\n%s", policy.Name, result.Error, text)
		}
	}
	for _, condition := range policy.Spec.MatchConditions {
		check(condition.Expression, cel.BoolType)
	}
	for _, validation := range policy.Spec.Validations {
		check(validation.Expression, cel.BoolType)
		if validation.MessageExpression != "" {
			check(validation.MessageExpression, cel.StringType)
		}
	}
}

type expression struct {
	text    string
	returns []*cel.Type
}

func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return e.returns }

type namedExpression struct {
	expression
	name string
}

func (e namedExpression) GetName() string { return e.name }
