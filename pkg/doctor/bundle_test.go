// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// leaky has a secret that begins with LEAK in each place where a bundle must hide it.
const leaky = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: d
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: LEAK1
    example.com/api-token: LEAK2
    note: see https://user:LEAK3@hub.example/a?sig=LEAK4
spec:
  template:
    spec:
      containers:
      - name: c
        env: [{name: A, value: LEAK5}, {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}]
        args: [--api-key=LEAK6, --password, LEAK7, --port=5000, "https://x:LEAK8@h.example/"]
        command: [sh, -c, "export TOKEN=LEAK9; run"]
`

// secrets are objects that the doctor never reads. A bundle must not have them even if a snapshot does.
const secrets = `
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {a: LEAK10}
`

// TestBundleHidesSecrets reads a bundle back and looks for secrets.
func TestBundleHidesSecrets(t *testing.T) {
	s := cluster(t, "kind")
	for _, text := range []string{leaky, secrets} {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		s.Objects = append(s.Objects, unstructured.Unstructured{Object: object})
	}
	s.Settings = []Settings{
		{ConfigMap: "modelberth-system/modelberth-settings", Values: map[string]string{"spending-cluster": "600"}},
		{ConfigMap: "other/settings", Problem: "GET https://h.example/a?token=LEAK12: 403"},
	}
	before, err := yaml.Marshal(s.Objects)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	finding := Finding{ID: "X", Severity: Error, Evidence: "GET https://h.example/a?token=LEAK11: 403", Fix: "ask"}
	if err := WriteBundle(&packed, s, []Finding{finding}); err != nil {
		t.Fatal(err)
	}
	after, err := yaml.Marshal(s.Objects)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("writing a bundle changes the snapshot (%v)", err)
	}
	files := unpack(t, &packed)
	for name, text := range files {
		if strings.Contains(text, "LEAK") {
			t.Errorf("%s holds a secret:\n%s", name, text)
		}
	}
	settings := "- configMap: modelberth-system/modelberth-settings\n  values:\n    spending-cluster: \"600\"\n" +
		"- configMap: other/settings\n  problem: 'GET https://h.example/a?…: 403'\n"
	if diff := cmp.Diff(settings, files["modelberth-support/settings.yaml"]); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if _, hasSecrets := files["modelberth-support/secret.yaml"]; hasSecrets {
		t.Error("the bundle has Secrets")
	}
	var got struct{ Spec any }
	deployments := strings.Split(files["modelberth-support/deployment.yaml"], "---\n")
	if err := yaml.Unmarshal([]byte(deployments[len(deployments)-1]), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "c", "args": []any{"--api-key=…", "--password", "…", "--port=5000", "https://…@h.example/"}, "command": []any{"sh", "-c", "…"},
		"env": []any{
			map[string]any{"name": "A", "value": "…"},
			map[string]any{"name": "B", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "s", "key": "k"}}},
		},
	}}}}}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func unpack(t *testing.T, packed io.Reader) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	out, archive := map[string]string{}, tar.NewReader(plain)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		out[header.Name] = string(text)
	}
}
