// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/doctor"
)

// pageSize is the number of objects in one page of a list.
const pageSize = 500

// Server describes the API server.
type Server interface {
	// Version returns the API server's version, and the time on its clock.
	Version(ctx context.Context) (version string, now time.Time, err error)
}

// restServer queries a real API server.
type restServer struct {
	client *http.Client
	url    string
}

func newServer(config *rest.Config) (*restServer, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &restServer{client: httpClient, url: base.JoinPath("version").String()}, nil
}

// Version implements Server.
func (s *restServer) Version(ctx context.Context) (version string, now time.Time, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return "", time.Time{}, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return "", time.Time{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", time.Time{}, fmt.Errorf("the API server answered with %s", response.Status)
	}
	var answer struct{ GitVersion string }
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, mostAnswer)).Decode(&answer); err != nil {
		return "", time.Time{}, fmt.Errorf("reading the version: %w", err)
	}
	now, err = http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return "", time.Time{}, fmt.Errorf("reading the API server's date: %w", err)
	}
	return answer.GitVersion, now, nil
}

// source is a kind of object that doctor reads.
type source struct {
	schema.GroupVersionKind
	// labels selects the objects; nil means all.
	labels client.ListOption
	// names limits the objects; empty means all.
	names []string
	// namespace of the objects; empty means all.
	namespace string
}

// kindsOf returns sources of all objects of some kinds.
func kindsOf(group, version string, kinds ...string) []source {
	var out []source
	for _, kind := range kinds {
		out = append(out, source{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}})
	}
	return out
}

// sources returns all kinds that doctor reads. Secrets and ConfigMaps are not among them: for a support bundle, settings
// reads single ConfigMaps.
func sources() []source {
	out := kindsOf("", "v1", "Node", "Service", "ServiceAccount", "PersistentVolumeClaim", "ResourceQuota")
	out = append(out, kindsOf("apps", "v1", "Deployment", "DaemonSet")...)
	out = append(out, kindsOf("kaito.sh", "v1beta1", "Workspace", "InferenceSet")...)
	out = append(out, kindsOf("karpenter.sh", "v1", "NodeClaim", "NodePool")...)
	out = append(out, kindsOf("karpenter.azure.com", "v1beta1", "AKSNodeClass")...)
	out = append(out, kindsOf("karpenter.k8s.aws", "v1", "EC2NodeClass")...)
	out = append(out, kindsOf("eks.amazonaws.com", "v1", "NodeClass")...)
	out = append(out, kindsOf("nvidia.com", "v1", "ClusterPolicy")...)
	out = append(out, kindsOf("rbac.authorization.k8s.io", "v1", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")...)
	out = append(out, kindsOf("coordination.k8s.io", "v1", "Lease")...)
	out = append(out, kindsOf("discovery.k8s.io", "v1", "EndpointSlice")...)
	out = append(out, kindsOf("storage.k8s.io", "v1", "StorageClass")...)
	out = append(out, kindsOf("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")...)
	return append(out,
		source{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
			labels:           client.MatchingLabels{"app.kubernetes.io/name": "modelberth"},
		},
		source{ // with the chart's nameOverride
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
			labels:           client.MatchingLabels{"app.kubernetes.io/part-of": "modelberth"},
		},
		source{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
			labels:           client.MatchingLabels{"app.kubernetes.io/name": "modelberth-router"},
		},
		source{
			GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
			labels:           client.HasLabels{"kaito.sh/workspace"},
		},
		source{
			GroupVersionKind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
			names: []string{
				"workspaces.kaito.sh", "inferencesets.kaito.sh", "nodeclaims.karpenter.sh",
				"nodepools.karpenter.sh",
			},
		})
}

// snapshot reads doctor's input. It fails only if the cluster does not answer.
func (c *Cluster) snapshot(ctx context.Context) (*doctor.Snapshot, error) {
	if c.Server == nil {
		return nil, errors.New("no API server is available here")
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	out := &doctor.Snapshot{Unread: map[string]string{}}
	var err error
	if out.Version, out.Now, err = c.Server.Version(limited); err != nil {
		return nil, worded(err, "the API server")
	}
	if err := c.addTo(ctx, out, sources()); err != nil {
		return nil, err
	}
	return out, nil
}

// addTo reads the objects of sources into a snapshot. It fails only if the cluster does not answer.
func (c *Cluster) addTo(ctx context.Context, out *doctor.Snapshot, from []source) error {
	for _, each := range from {
		objects, err := c.readAll(ctx, each)
		switch {
		case err == nil:
			out.Objects = append(out.Objects, objects...)
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err): // the cluster lacks the kind
		case apierrors.IsForbidden(err):
			out.Unread[each.Kind] = err.Error()
		default:
			return worded(err, each.Kind)
		}
	}
	return nil
}

// controllers reads the Deployments with names of applications, and the objects of administrators that name the
// controller's ServiceAccount.
func (c *Cluster) controllers(ctx context.Context) (*doctor.Snapshot, error) {
	out := &doctor.Snapshot{Unread: map[string]string{}}
	deployments, err := c.readAll(ctx, source{
		GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		labels:           client.HasLabels{"app.kubernetes.io/name"},
	})
	if err != nil {
		return nil, worded(err, "Deployments")
	}
	out.Objects = deployments
	return out, c.addTo(ctx, out, slices.Concat(
		kindsOf("rbac.authorization.k8s.io", "v1", "ClusterRole", "ClusterRoleBinding"),
		kindsOf("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy")))
}

// readAll reads the objects of a source.
func (c *Cluster) readAll(ctx context.Context, from source) ([]unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var out []unstructured.Unstructured
	for _, name := range from.names {
		object := unstructured.Unstructured{}
		object.SetGroupVersionKind(from.GroupVersionKind)
		err := c.Objects.Get(ctx, client.ObjectKey{Name: name}, &object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, object)
	}
	if len(from.names) > 0 {
		return out, nil
	}
	for next := ""; ; {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(from.GroupVersion().WithKind(from.Kind + "List"))
		options := []client.ListOption{client.Limit(pageSize), client.Continue(next), client.InNamespace(from.namespace)}
		if from.labels != nil {
			options = append(options, from.labels)
		}
		if err := c.Objects.List(ctx, list, options...); err != nil {
			return nil, err
		}
		out = append(out, list.Items...)
		if next = list.GetContinue(); next == "" {
			return out, nil
		}
	}
}

// settings reads the controllers' settings in ConfigMaps, given as NAMESPACE/NAME.
func (c *Cluster) settings(ctx context.Context, configMaps []string, describe func(map[string]string) map[string]string) []doctor.Settings {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var out []doctor.Settings
	for _, each := range configMaps {
		namespace, name, _ := strings.Cut(each, "/")
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
		err := c.Objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
		var data map[string]string
		if err == nil {
			data, _, err = unstructured.NestedStringMap(object.Object, "data")
		}
		read := doctor.Settings{ConfigMap: each}
		if err != nil {
			read.Problem = err.Error()
		} else {
			read.Values = describe(data)
		}
		out = append(out, read)
	}
	return out
}
