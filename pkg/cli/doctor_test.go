// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// clockServer is an API server with a version and a time.
type clockServer struct{ err error }

func (s clockServer) Version(context.Context) (version string, now time.Time, err error) {
	return "v1.35.4", noon, s.err
}

// kinds makes lists return the given objects by kind. Other kinds do not exist.
func kinds(objects map[string][]map[string]any, forbidden string) interceptor.Funcs {
	answer := func(kind string) ([]unstructured.Unstructured, error) {
		listed, known := objects[kind]
		switch {
		case kind == forbidden:
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("mia may not list nodes"))
		case !known:
			return nil, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}}
		}
		var out []unstructured.Unstructured
		for _, object := range listed {
			object["kind"] = kind
			out = append(out, unstructured.Unstructured{Object: object})
		}
		return out, nil
	}
	return interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			into, _ := list.(*unstructured.UnstructuredList)
			kind := into.GetKind()
			var err error
			into.Items, err = answer(kind[:len(kind)-len("List")])
			return err
		},
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			into, _ := object.(*unstructured.Unstructured)
			all, err := answer(into.GetKind())
			for _, each := range all {
				if each.GetName() == key.Name {
					into.Object = each.Object
					return nil
				}
			}
			if err != nil {
				return err
			}
			return apierrors.NewNotFound(schema.GroupResource{Resource: into.GetKind()}, key.Name)
		},
	}
}

// named is an object of doctor's tests.
func named(namespace, name string, below map[string]any) map[string]any {
	out := map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name}}
	maps.Copy(out, below)
	return out
}

// sickCluster returns a cluster without our controller and its CustomResourceDefinitions. It has a Workspace with an
// unreachable hub.
func sickCluster() map[string][]map[string]any {
	return map[string][]map[string]any{
		"Deployment": {}, "CustomResourceDefinition": {},
		"Workspace": {named("team-a", "chat", map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "InferenceReady", "status": "False", "reason": v1beta1.ReasonWeightsHubUnreachable, "message": "the hub https://hub.example does not answer"},
		}}})},
		"DaemonSet": {named("kube-system", "cilium", nil)},
		"Service":   {}, "EndpointSlice": {},
	}
}

func TestDoctor(t *testing.T) {
	healthy := map[string][]map[string]any{
		"DaemonSet": {named("kube-system", "cilium", nil)},
		"Service":   {named("kube-system", "kube-dns", nil)},
		"EndpointSlice": {named("kube-system", "a", map[string]any{
			"endpoints": []any{map[string]any{"addresses": []any{"10.0.0.1"}}},
		})},
		"Lease": {named("modelberth-system", "modelberth-controller", map[string]any{"spec": map[string]any{"renewTime": "2026-11-20T11:59:59.000000Z"}})},
	}
	established := map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	spec := map[string]any{"versions": []any{map[string]any{
		"name": "v1beta1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"x-kubernetes-preserve-unknown-fields": true}},
	}}}
	healthy["CustomResourceDefinition"] = []map[string]any{
		named("", "workspaces.kaito.sh", map[string]any{"spec": spec, "status": established}),
		named("", "inferencesets.kaito.sh", map[string]any{"spec": spec, "status": established}),
	}
	healthy["Deployment"] = []map[string]any{named("modelberth-system", "modelberth", map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"serviceAccountName": "berth"}}}, "status": map[string]any{"availableReplicas": int64(1)},
	})}
	label := func(kind, key, value string) {
		metadata, _ := healthy[kind][0]["metadata"].(map[string]any)
		metadata["labels"] = map[string]any{key: value}
	}
	label("Deployment", "app.kubernetes.io/name", "modelberth")
	label("EndpointSlice", "kubernetes.io/service-name", "kube-dns")
	everything := []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}}
	healthy["ServiceAccount"] = []map[string]any{named("modelberth-system", "berth", nil)}
	healthy["ClusterRole"] = []map[string]any{named("", "all", map[string]any{"rules": everything})}
	healthy["ClusterRoleBinding"] = []map[string]any{named("", "all", map[string]any{
		"roleRef":  map[string]any{"kind": "ClusterRole", "name": "all"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "modelberth-system", "name": "berth"}},
	})}
	bundle := filepath.Join(t.TempDir(), "support.tar.gz")
	tests := []struct {
		name, reason string
		cluster      cluster
		args         []string
		code         int
	}{
		{"doctor", "a healthy cluster", cluster{faults: kinds(healthy, "")}, nil, 0},
		{"doctor-forbidden", "what the user may not read is a warning", cluster{faults: kinds(healthy, "Node")}, nil, 0},
		{"doctor-sick", "each finding has evidence and a fix", cluster{faults: kinds(sickCluster(), "")}, []string{"--support-bundle", bundle}, 1},
		{"doctor-json", "data for programs", cluster{faults: kinds(sickCluster(), "")}, []string{"-o", "json"}, 1},
		{"doctor-unreachable", "nobody answers", cluster{server: clockServer{err: errors.New("no route to host")}}, nil, 2},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if test.cluster.server == nil {
				test.cluster.server = clockServer{}
			}
			got := test.cluster.run(t, session{}, append([]string{"doctor"}, test.args...)...)
			if got.Code != test.code {
				t.Errorf("exit code %d, want %d", got.Code, test.code)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
	checkBundle(t, bundle)
}

// TestDoctorReadsRouters: the pods of the routers have labels of their own.
func TestDoctorReadsRouters(t *testing.T) {
	objects := sickCluster()
	objects["Deployment"] = []map[string]any{named("modelberth-system", "modelberth", nil)}
	pod := named("modelberth-system", "modelberth-router-0", map[string]any{"status": map[string]any{"containerStatuses": []any{map[string]any{
		"name": "router", "restartCount": int64(1), "state": map[string]any{"running": map[string]any{}},
		"lastState": map[string]any{"terminated": map[string]any{"exitCode": int64(2), "reason": "Error", "finishedAt": "2026-11-20T11:00:00Z"}},
	}}}})
	objects["Pod"] = []map[string]any{pod}
	for name, object := range map[string]map[string]any{"modelberth": objects["Deployment"][0], "modelberth-router": pod} {
		metadata, _ := object["metadata"].(map[string]any)
		metadata["labels"] = map[string]any{"app.kubernetes.io/name": name}
	}
	faults := kinds(objects, "")
	all := faults.List
	faults.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if err := all(ctx, c, list, options...); err != nil {
			return err
		}
		chosen := client.ListOptions{}
		chosen.ApplyOptions(options)
		if into, ok := list.(*unstructured.UnstructuredList); ok && chosen.LabelSelector != nil {
			into.Items = slices.DeleteFunc(into.Items, func(o unstructured.Unstructured) bool {
				return !chosen.LabelSelector.Matches(labels.Set(o.GetLabels()))
			})
		}
		return nil
	}
	got := (&cluster{faults: faults, server: clockServer{}}).run(t, session{}, "doctor")
	if want := "ContainerRestarted Pod/modelberth-system/modelberth-router-0\n"; strings.Count(got.Out, want) != 1 {
		t.Errorf("doctor does not report %q once:\n%s%s", want, got.Out, got.Err)
	}
}

// describedSettings shows one setting, and hides all others.
func describedSettings(data map[string]string) map[string]string {
	return map[string]string{"spending-cluster": data["spending-cluster"]}
}

// TestBundleHasSettings: a support bundle has the ceilings that the controller uses, and nothing else from its ConfigMap.
// Without a bundle, doctor reads no ConfigMap.
func TestBundleHasSettings(t *testing.T) {
	controller := named("modelberth-system", "modelberth", map[string]any{"spec": map[string]any{"template": map[string]any{
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "controller", "args": []any{"--settings-config-map=modelberth-system/modelberth-settings"},
		}}},
	}}})
	controller["metadata"] = map[string]any{
		"namespace": "modelberth-system", "name": "modelberth", "labels": map[string]any{"app.kubernetes.io/name": "modelberth"},
	}
	objects := sickCluster()
	tenants := named("team-a", "modelberth", map[string]any{"spec": map[string]any{"template": map[string]any{
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "controller", "args": []any{"--settings-config-map=team-b/foreign"},
		}}},
	}}})
	tenants["metadata"] = map[string]any{
		"namespace": "team-a", "name": "modelberth", "labels": map[string]any{"app.kubernetes.io/name": "modelberth"},
	}
	objects["Deployment"] = []map[string]any{tenants, controller}
	objects["ClusterRoleBinding"] = []map[string]any{named("", "modelberth", map[string]any{
		"roleRef":  map[string]any{"kind": "ClusterRole", "name": "modelberth"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "modelberth-system", "name": "default"}},
	})}
	objects["ClusterRoleBinding"][0]["metadata"] = map[string]any{"name": "modelberth", "labels": map[string]any{"app.kubernetes.io/name": "modelberth"}}
	found := named("modelberth-system", "modelberth-settings", map[string]any{"data": map[string]any{
		"spending-cluster": "1200", "zap-log-level": "LEAK1", "api-token": "LEAK2",
	}})
	tests := []struct {
		reason    string
		existing  []map[string]any
		forbidden string
		want      []string
	}{
		{"a ConfigMap with secrets", []map[string]any{found}, "", []string{
			"configMap: modelberth-system/modelberth-settings", `spending-cluster: "1200"`,
		}},
		{"no right to read it", []map[string]any{}, "ConfigMap", []string{"problem:", "forbidden"}},
		{"no ConfigMap", []map[string]any{}, "", []string{"problem:", "not found"}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			objects["ConfigMap"] = test.existing
			faults, reads := kinds(objects, test.forbidden), 0
			get := faults.Get
			faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if object.GetObjectKind().GroupVersionKind().Kind == "ConfigMap" {
					reads++
				}
				return get(ctx, c, key, object, options...)
			}
			at := cluster{server: clockServer{}, faults: faults}
			path := filepath.Join(t.TempDir(), "support.tar.gz")
			at.run(t, session{}, "doctor")
			if reads > 0 {
				t.Error("without a bundle, doctor reads a ConfigMap")
			}
			at.run(t, session{}, "doctor", "--support-bundle", path)
			text := bundled(t, path, "modelberth-support/settings.yaml")
			for _, part := range test.want {
				if !strings.Contains(text, part) {
					t.Errorf("the settings lack %q:\n%s", part, text)
				}
			}
			if strings.Contains(text, "foreign") {
				t.Errorf("doctor reads the ConfigMap that a tenant's Deployment names:\n%s", text)
			}
			if strings.Contains(text, "LEAK") {
				t.Errorf("the settings hold a secret:\n%s", text)
			}
		})
	}
}

// TestDoctorHelp: the help says what a bundle has of ConfigMaps. An unknown key is a mistake, so the bundle names it.
func TestDoctorHelp(t *testing.T) {
	at := cluster{server: clockServer{}}
	got := at.run(t, session{}, "doctor", "--help")
	const want = "Of a ConfigMap with settings, it has every key, but only values that are valid settings."
	if !strings.Contains(strings.ReplaceAll(got.Out, "\n", " "), want) {
		t.Errorf("the help lacks %q:\n%s", want, got.Out)
	}
}

// bundled returns a file of a support bundle.
func bundled(t *testing.T, path, name string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if err != nil {
			t.Fatalf("looking for %s: %v", name, err)
		}
		if header.Name == name {
			text, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
}

// checkBundle opens a bundle, and checks that only its owner can read it.
func checkBundle(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s (%v), want 0600", info.Mode(), err)
	}
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(plain).Next()
	if err != nil || header.Name != "modelberth-support/daemonset.yaml" {
		t.Errorf("the first file is %v (%v)", header, err)
	}
}
