// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap puts the local cloud's objects into a new cluster: Karpenter's API, the cloud's own node class,
// and the cluster's DNS Service. It decides these objects and their order; it must not know how the cluster runs.
package bootstrap

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/apis"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// owner is the field manager of all applied objects.
const owner = client.FieldOwner("modelberth-localcloud")

// retryInterval is the pause before another try with an object of a new API: the server takes a moment to serve it.
const retryInterval = 100 * time.Millisecond

// Apply puts the objects in.
func Apply(ctx context.Context, c client.Client) error {
	objects, err := Objects()
	if err != nil {
		return err
	}
	for _, object := range objects {
		what := fmt.Sprintf("%s %s to be accepted", object.GetKind(), object.GetName())
		err := process.Await(ctx, what, retryInterval, func(ctx context.Context) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), owner, client.ForceOwnership)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Objects returns Apply's objects, definitions before their instances.
func Objects() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, crd := range apis.CRDs {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return nil, fmt.Errorf("converting CustomResourceDefinition %s: %w", crd.Name, err)
		}
		unstructured.RemoveNestedField(content, "status")
		object := &unstructured.Unstructured{Object: content}
		object.SetAPIVersion("apiextensions.k8s.io/v1")
		object.SetKind("CustomResourceDefinition")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		out = append(out, object)
	}
	for _, name := range []string{"nodeclass-crd.yaml", "coredns.yaml", "karpenter.yaml", "nodeclass.yaml"} {
		decoded, err := decode(name)
		if err != nil {
			return nil, err
		}
		out = append(out, decoded...)
	}
	return out, nil
}

func decode(name string) ([]*unstructured.Unstructured, error) {
	data, err := fs.ReadFile(manifests, "manifests/"+name)
	if err != nil {
		return nil, fmt.Errorf("reading manifest %s: %w", name, err)
	}
	filled := strings.NewReplacer("${DNS_SERVICE}", layout.DNSService, "${CONTROL_ADDRESS}", layout.ControlAddress).Replace(string(data))
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(filled)), 4096)
	var out []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decoding manifest %s: %w", name, err)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
}
