// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade checks stored objects against the CustomResourceDefinitions and admission policies of a version that
// is not installed yet. It runs the API server's own validation locally, so it sends nothing to a cluster.
//
// It decides which objects conflict with the new rules. It must not know plans, or how objects are read.
package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Rules are the CustomResourceDefinitions and admission policies of the new version.
type Rules struct {
	kinds    map[schema.GroupKind]*kind
	policies []*policy
}

// Kinds returns the kinds of the rules, sorted by name, each with its storage version.
func (r *Rules) Kinds() []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for of, known := range r.kinds {
		out = append(out, of.WithVersion(known.stored))
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Read compiles the CustomResourceDefinitions and admission policies among objects. It ignores other objects, and
// policies that only warn or have no binding.
func Read(objects []unstructured.Unstructured) (*Rules, error) {
	out := &Rules{kinds: map[schema.GroupKind]*kind{}}
	denying := denyingBindings(objects)
	for i := range objects {
		object := &objects[i]
		switch object.GroupVersionKind().GroupKind().String() {
		case "CustomResourceDefinition.apiextensions.k8s.io":
			definition := &apiextensionsv1.CustomResourceDefinition{}
			if err := decode(object, definition); err != nil {
				return nil, err
			}
			compiled, err := newKind(definition)
			if err != nil {
				return nil, fmt.Errorf("CustomResourceDefinition %s: %w", definition.Name, err)
			}
			out.kinds[schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}] = compiled
		case "ValidatingAdmissionPolicy.admissionregistration.k8s.io":
			if !slices.Contains(denying, object.GetName()) {
				continue
			}
			read := &admissionregistrationv1.ValidatingAdmissionPolicy{}
			if err := decode(object, read); err != nil {
				return nil, err
			}
			compiled, err := newPolicy(read)
			if err != nil {
				return nil, fmt.Errorf("ValidatingAdmissionPolicy %s: %w", read.Name, err)
			}
			out.policies = append(out.policies, compiled)
		}
	}
	if len(out.kinds) == 0 {
		return nil, errors.New("there is no CustomResourceDefinition among the objects")
	}
	return out, nil
}

// denyingBindings returns the names of the policies with a binding that denies.
func denyingBindings(objects []unstructured.Unstructured) []string {
	var out []string
	for i := range objects {
		if objects[i].GetKind() != "ValidatingAdmissionPolicyBinding" {
			continue
		}
		actions, _, _ := unstructured.NestedStringSlice(objects[i].Object, "spec", "validationActions")
		name, _, _ := unstructured.NestedString(objects[i].Object, "spec", "policyName")
		if slices.Contains(actions, string(admissionregistrationv1.Deny)) {
			out = append(out, name)
		}
	}
	return out
}

func decode(object *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// Check returns the problems of one stored object.
func (r *Rules) Check(ctx context.Context, object *unstructured.Unstructured) []Finding {
	of := object.GroupVersionKind()
	known := r.kinds[of.GroupKind()]
	if known == nil {
		return nil
	}
	found := func(problem Problem, rule, message string) Finding {
		return Finding{
			Problem: problem, Kind: of.Kind, Namespace: object.GetNamespace(), Name: object.GetName(), Rule: rule, Message: message,
		}
	}
	version := known.versions[of.Version]
	if version == nil {
		return []Finding{found(VersionLost, ruleSchema, fmt.Sprintf("version %s is not served", of.Version))}
	}
	var out []Finding
	stored, lost := version.stored(object)
	if len(lost) > 0 {
		out = append(out, found(FieldsLost, ruleSchema, "the new schema lacks "+joined(lost)))
	}
	for _, refused := range r.update(ctx, known, version, stored) {
		out = append(out, found(NotWritable, refused.rule, refused.message))
	}
	if len(out) > 0 && slices.ContainsFunc(out, func(f Finding) bool { return f.Problem == NotWritable }) {
		return out // a new object would be refused for the same reason
	}
	for _, refused := range r.create(ctx, known, version, stored) {
		out = append(out, found(RefusedIfNew, refused.rule, refused.message))
	}
	return out
}

// CheckDefinition returns the problems of an installed CustomResourceDefinition. The API server refuses an update that
// removes a version of stored objects.
func (r *Rules) CheckDefinition(installed *unstructured.Unstructured) []Finding {
	group, _, _ := unstructured.NestedString(installed.Object, "spec", "group")
	name, _, _ := unstructured.NestedString(installed.Object, "spec", "names", "kind")
	stored, _, _ := unstructured.NestedStringSlice(installed.Object, "status", "storedVersions")
	known := r.kinds[schema.GroupKind{Group: group, Kind: name}]
	if known == nil {
		return nil
	}
	var out []Finding
	for _, version := range stored {
		if known.versions[version] == nil {
			out = append(out, Finding{
				Problem: VersionLost, Kind: installed.GetKind(), Name: installed.GetName(), Rule: ruleSchema,
				Message: fmt.Sprintf("objects may be stored in version %s, which the new CustomResourceDefinition does "+
					"not have, so the API server rejects the new definition", version),
			})
		}
	}
	return out
}

// Objects reads the objects in all YAML files.
func Objects(files fs.FS) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		read, err := Parse(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, read...)
		return nil
	})
	return out, err
}

// Parse reads the objects of a YAML text.
func Parse(text []byte) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, err
		}
		if string(bytes.TrimSpace(data)) == "null" { // only comments
			continue
		}
		object := unstructured.Unstructured{}
		if err := object.UnmarshalJSON(data); err != nil {
			return nil, err
		}
		out = append(out, object)
	}
}
