// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/takeover"
)

var update = flag.Bool("update", false, "write the golden files")

// storedObjects returns the objects in testdata. A real KAITO created them, and an API server stored them.
func storedObjects(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var out []unstructured.Unstructured
	for _, name := range []string{"karpenter.yaml", "gpu-provisioner.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			object := unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if object.Object != nil {
				out = append(out, object)
			}
		}
	}
	return out
}

func typedOf[T any](t *testing.T, object unstructured.Unstructured) T {
	t.Helper()
	var out T
	text, err := json.Marshal(object.Object)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stored returns a cluster with the stored objects, but without KAITO's controller.
func stored(t *testing.T) *takeover.Cluster {
	t.Helper()
	out := &takeover.Cluster{}
	for _, object := range storedObjects(t) {
		switch object.GetKind() {
		case "Workspace":
			out.Workspaces = append(out.Workspaces, typedOf[v1beta1.Workspace](t, object))
		case "StatefulSet":
			out.StatefulSets = append(out.StatefulSets, typedOf[appsv1.StatefulSet](t, object))
		case "Service":
			out.Services = append(out.Services, typedOf[corev1.Service](t, object))
		case "NodePool":
			out.NodePools = append(out.NodePools, object)
		case "NodeClaim":
			out.NodeClaims = append(out.NodeClaims, object)
		}
	}
	return out
}

// withController adds KAITO's controller and the objects of its chart.
func withController(c *takeover.Cluster) *takeover.Cluster {
	release := map[string]string{"meta.helm.sh/release-name": "kaito", "meta.helm.sh/release-namespace": "kaito-system"}
	c.Deployments = append(c.Deployments, appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kaito-system", Name: "kaito-workspace", Annotations: release},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Image: "mcr.example/aks/kaito/workspace:0.12.0"}},
		}}},
		Status: appsv1.DeploymentStatus{AvailableReplicas: 1},
	})
	hook := unstructured.Unstructured{Object: map[string]any{"webhooks": []any{map[string]any{"name": "validation.workspace.kaito.sh"}}}}
	hook.SetName("validation.workspace.kaito.sh")
	other := unstructured.Unstructured{Object: map[string]any{"webhooks": []any{map[string]any{"name": "validate.example.com"}}}}
	other.SetName("other")
	c.Webhooks = []unstructured.Unstructured{other, hook}
	definition := unstructured.Unstructured{Object: map[string]any{}}
	definition.SetName("workspaces.kaito.sh")
	definition.SetAnnotations(release)
	c.Definitions = []unstructured.Unstructured{definition}
	return c
}

func prices(instanceType, _ string, isSpot bool) (float64, bool) {
	price, isKnown := map[string]float64{"Standard_NC24ads_A100_v4": 4}[instanceType]
	if isSpot {
		price /= 4
	}
	return price, isKnown
}

// TestSurvey compares the report about a real KAITO's objects with a golden file.
func TestSurvey(t *testing.T) {
	got, err := json.MarshalIndent(takeover.Survey(withController(stored(t)), prices), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "survey.golden.json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// TestObstacles changes one thing at a time.
func TestObstacles(t *testing.T) {
	for _, test := range []struct {
		reason string
		change func(*takeover.Cluster)
		want   []string
	}{
		{"nothing", func(*takeover.Cluster) {}, nil},
		{"KAITO's controller runs", func(c *takeover.Cluster) { withController(c) }, []string{"KAITORunning", "KAITOWebhook"}},
		{"it is stopped, and its webhook is left", func(c *takeover.Cluster) {
			withController(c)
			c.Deployments[0].Spec.Replicas, c.Deployments[0].Status.AvailableReplicas = new(int32(0)), 0
		}, []string{"KAITOWebhook"}},
		{"it is stopped, and a pod of it still runs", func(c *takeover.Cluster) {
			withController(c)
			c.Deployments[0].Spec.Replicas, c.Webhooks = new(int32(0)), nil
		}, []string{"KAITORunning"}},
		{"a Workspace is suspended", func(c *takeover.Cluster) { c.Workspaces[0].Suspend = true }, []string{"Suspended"}},
		{"its StatefulSet is missing", func(c *takeover.Cluster) { c.StatefulSets = c.StatefulSets[1:] }, []string{"NothingServes"}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			c := stored(t)
			c.Workspaces = c.Workspaces[:len(c.Workspaces)-1] // the last Workspace has no StatefulSet
			test.change(c)
			var got []string
			report := takeover.Survey(c, prices)
			for i := range report.Obstacles {
				got = append(got, report.Obstacles[i].ID)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("obstacles (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSurveyLeavesOthersOut: the report has no Workspace that this controller serves.
func TestSurveyLeavesOthersOut(t *testing.T) {
	c := stored(t)
	c.Workspaces, c.NodePools, c.NodeClaims = c.Workspaces[:1], nil, nil
	c.StatefulSets[0].Labels = map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
	if report := takeover.Survey(c, prices); len(report.Workspaces) != 0 {
		t.Errorf("reported: %+v", report.Workspaces)
	}
	stranger := stored(t)
	stranger.Workspaces, stranger.NodePools, stranger.NodeClaims = stranger.Workspaces[:1], nil, nil
	stranger.StatefulSets[0].OwnerReferences = nil
	if report := takeover.Survey(stranger, prices); len(report.Workspaces) != 0 {
		t.Errorf("reported, although its StatefulSet is somebody else's: %+v", report.Workspaces)
	}
}
