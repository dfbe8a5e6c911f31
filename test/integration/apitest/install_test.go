// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// install brings the chart's CRD and policies in, and waits until all of them are heeded.
func (s *server) install(ctx context.Context) error {
	crd, err := readCRD()
	if err != nil {
		return err
	}
	if err := s.apply(ctx, crd); err != nil {
		return err
	}
	policies, err := readPolicies()
	if err != nil {
		return err
	}
	for _, policy := range policies {
		if err := s.apply(ctx, policy); err != nil {
			return err
		}
	}
	return s.waitUntil(ctx, "the rules are heeded", func(ctx context.Context) error {
		if err := s.tryCreate(ctx, `{preset: {name: m}, adapters: [{}]}`, "canary"); !apierrors.IsInvalid(err) {
			return fmt.Errorf("an adapter without a source should be invalid, got: %w", err)
		}
		if err := s.tryCreate(ctx, `{preset: {name: m}}`, "1-canary"); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a name that begins with a digit should be refused by the policy, got: %w", err)
		}
		s.warnings.take()
		err := s.tryCreate(ctx, `{preset: {name: m, accessMode: private}}`, "canary")
		if len(s.warnings.take()) == 0 {
			return fmt.Errorf("a deprecated field should be warned of, got: %w", err)
		}
		return err
	})
}

// installOlder brings an older schema in, without a single rule, and takes the policies away.
func (s *server) installOlder(ctx context.Context) error {
	crd, err := readCRD()
	if err != nil {
		return err
	}
	for i := range crd.Spec.Versions {
		withoutRules(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
	if err := s.apply(ctx, crd); err != nil {
		return err
	}
	for _, list := range []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
	} {
		if err := s.DeleteAllOf(ctx, list); err != nil {
			return err
		}
	}
	return s.waitUntil(ctx, "the rules are forgotten", func(ctx context.Context) error {
		return s.tryCreate(ctx, `{adapters: [{}]}`, "1-canary")
	})
}

// withoutRules removes every rule of a schema that can refuse a value, as if it did not exist yet. Only the shape
// remains.
func withoutRules(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations, s.Enum, s.Required, s.AnyOf = nil, nil, nil, nil
	s.Pattern, s.Format = "", ""
	s.Minimum, s.Maximum, s.MinLength, s.MaxLength = nil, nil, nil, nil
	s.MinItems, s.MaxItems, s.MinProperties, s.MaxProperties = nil, nil, nil, nil
	s.XListType, s.XListMapKeys, s.XMapType = nil, nil, nil
	for name, property := range s.Properties {
		withoutRules(&property)
		if name == "resource" {
			property.Default = nil
		}
		s.Properties[name] = property
	}
	if s.Items != nil {
		withoutRules(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		withoutRules(s.AdditionalProperties.Schema)
	}
}

// tryCreate creates a Workspace with that inference, and stores nothing.
func (s *server) tryCreate(ctx context.Context, inference, name string) error {
	ws, err := workspace("v1beta1", fmt.Sprintf("{name: %s, namespace: refused}", name), "inference: "+inference)
	if err != nil {
		return err
	}
	return s.Create(ctx, ws, client.DryRunAll)
}

// apply creates an object or replaces it, as an upgrade of the chart does.
func (s *server) apply(ctx context.Context, desired client.Object) error {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(desired.GetObjectKind().GroupVersionKind())
	err := s.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	switch {
	case apierrors.IsNotFound(err):
		return s.Create(ctx, desired)
	case err != nil:
		return err
	default:
		desired.SetResourceVersion(existing.GetResourceVersion())
		return s.Update(ctx, desired)
	}
}

// waitUntil tries until it succeeds: the API server heeds a new schema or policy some time after it
// was stored.
func (*server) waitUntil(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w: %w", what, err, last)
	}
	return nil
}

func readCRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	data, err := os.ReadFile(crdPath)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err = yaml.UnmarshalStrict(data, crd)
	return crd, err
}

func readPolicies() ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(policiesPath, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no policies in %s", policiesPath)
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		objects, err := readObjects(file)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	return out, nil
}

func readObjects(file string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		object, err := parse(string(document))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		out = append(out, object)
	}
}

// workspace puts a Workspace together from YAML.
func workspace(version, metadata, body string) (*unstructured.Unstructured, error) {
	return parse(fmt.Sprintf("apiVersion: kaito.sh/%s\nkind: Workspace\nmetadata: %s\n%s\n", version, metadata, body))
}

func parse(manifest string) (*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(manifest))
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	err = object.UnmarshalJSON(data)
	return object, err
}
