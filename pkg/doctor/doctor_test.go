// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// healthy has the clusters of testdata.
type healthy struct {
	Common, Karpenter []map[string]any
	Clusters          map[string]struct {
		Flags     []string
		Karpenter bool
		Objects   []map[string]any
	}
}

// pruned is a field that is missing in a definition, by its path in the schema.
type pruned struct {
	Definition string
	Path       []string
}

// fault is a difference from a healthy cluster, with the expected finding.
type fault struct {
	Why, Cluster, Version string
	Set                   map[string]map[string]any
	Add                   []map[string]any
	Remove, RemoveKinds   []string
	Prune                 *pruned
	Flags                 []string
	Unread                map[string]string
	Want                  Finding
}

func load(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// installed caches the objects of installation, because they are slow to parse.
var installed []map[string]any

// installation returns the chart's objects in a cluster where the chart is running.
func installation(t *testing.T) []map[string]any {
	t.Helper()
	if installed == nil {
		installed = parseInstallation(t)
	}
	var out []map[string]any
	for _, object := range installed {
		out = append(out, runtime.DeepCopyJSON(object))
	}
	return out
}

func parseInstallation(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	text, err := os.ReadFile("../../test/chart/testdata/minimal.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	texts := strings.Split(string(text), "\n---\n")
	for _, name := range []string{"workspaces", "inferencesets"} {
		text, err := os.ReadFile(filepath.Join("../../charts/modelberth/files/crds", "kaito.sh_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		switch object["kind"] {
		case "Deployment":
			object["status"] = map[string]any{"availableReplicas": int64(2)}
		case "CustomResourceDefinition":
			object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
		}
		out = append(out, object)
	}
	return out
}

// cluster returns a healthy cluster. Tests may change its objects.
func cluster(t *testing.T, name string) *Snapshot {
	t.Helper()
	var all healthy
	load(t, "testdata/clusters.yaml", &all)
	chosen, known := all.Clusters[name]
	if !known {
		t.Fatalf("there is no cluster %q", name)
	}
	objects := slices.Concat(installation(t), all.Common, chosen.Objects)
	if chosen.Karpenter {
		objects = append(objects, all.Karpenter...)
	}
	out := &Snapshot{Version: "v1.35.4", Now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
	for _, object := range objects {
		out.Objects = append(out.Objects, unstructured.Unstructured{Object: object})
	}
	setFlags(t, out, chosen.Flags)
	return out
}

// setFlags replaces flags of the controller.
func setFlags(t *testing.T, s *Snapshot, flags []string) {
	t.Helper()
	d := s.find("Deployment", "modelberth-system", "modelberth")
	containers, found, err := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if err != nil || !found {
		t.Fatalf("the controller has no containers (%v)", err)
	}
	container, _ := containers[0].(map[string]any)
	args, _ := container["args"].([]any)
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		args = slices.DeleteFunc(args, func(arg any) bool {
			text, _ := arg.(string)
			return text == name || strings.HasPrefix(text, name+"=")
		})
		if !strings.Contains(flag, "=") {
			flag += "=true"
		}
		args = append(args, flag)
	}
	container["args"] = args
	if err := unstructured.SetNestedSlice(d.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
}

// merge applies a JSON merge patch.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		below, isMap := value.(map[string]any)
		existing, hasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && hasMap:
			merge(existing, below)
		default:
			into[key] = value
		}
	}
}

// breaks applies the fault to a cluster.
func (f *fault) breaks(t *testing.T, s *Snapshot) {
	t.Helper()
	if f.Version != "" {
		s.Version = f.Version
	}
	s.Unread = f.Unread
	for name, patch := range f.Set {
		at := slices.IndexFunc(s.Objects, func(o unstructured.Unstructured) bool { return called(&o) == name })
		if at < 0 {
			t.Fatalf("%s: the cluster has no %s", f.Why, name)
		}
		merge(s.Objects[at].Object, patch)
	}
	if f.Flags != nil {
		setFlags(t, s, f.Flags)
	}
	if f.Prune != nil {
		definition := s.find("CustomResourceDefinition", "", f.Prune.Definition)
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		for _, version := range versions {
			fields, _ := version.(map[string]any)
			schema := append([]string{"schema", "openAPIV3Schema"}, f.Prune.Path...)
			if _, isThere, _ := unstructured.NestedMap(fields, schema...); !isThere {
				t.Fatalf("%s: the definition has no %v", f.Why, f.Prune.Path)
			}
			unstructured.RemoveNestedField(fields, schema...)
		}
		_ = unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
	}
	for _, name := range f.Remove {
		before := len(s.Objects)
		s.Objects = slices.DeleteFunc(s.Objects, func(o unstructured.Unstructured) bool { return called(&o) == name })
		if len(s.Objects) == before {
			t.Fatalf("%s: the cluster has no %s", f.Why, name)
		}
	}
	s.Objects = slices.DeleteFunc(s.Objects, func(o unstructured.Unstructured) bool { return slices.Contains(f.RemoveKinds, o.GetKind()) })
	for _, object := range f.Add {
		s.Objects = append(s.Objects, unstructured.Unstructured{Object: object})
	}
}

// TestHealthyClusters: a healthy cluster has no findings.
func TestHealthyClusters(t *testing.T) {
	var all healthy
	load(t, "testdata/clusters.yaml", &all)
	want := []string{"aks", "eks", "existing", "kind", "self-managed"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(all.Clusters))); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	for name := range all.Clusters {
		if got := Examine(cluster(t, name)); len(got) > 0 {
			t.Errorf("%s is healthy, and has the findings %+v", name, got)
		}
	}
}

// TestFaults: each fault causes its finding and no other.
func TestFaults(t *testing.T) {
	var faults []fault
	load(t, "testdata/faults.yaml", &faults)
	if len(faults) < 60 {
		t.Errorf("%d faults, want 60 or more", len(faults))
	}
	for _, f := range faults {
		t.Run(f.Want.ID+": "+f.Why, func(t *testing.T) {
			s := cluster(t, f.Cluster)
			f.breaks(t, s)
			var got []Finding
			for _, finding := range Examine(s) {
				got = append(got, Finding{ID: finding.ID, Object: finding.Object})
				if finding.Evidence == "" || finding.Fix == "" || finding.Severity == "" {
					t.Errorf("finding %+v lacks evidence, a fix or its severity", finding)
				}
			}
			if diff := cmp.Diff([]Finding{f.Want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFindingsAreDocumented: docs/doctor.md lists each finding, and docs/troubleshooting.md each reason of a Workspace.
func TestFindingsAreDocumented(t *testing.T) {
	var faults []fault
	load(t, "testdata/faults.yaml", &faults)
	for _, f := range faults {
		path, mark := "../../docs/doctor.md", "`"+f.Want.ID+"`"
		if strings.HasPrefix(f.Want.Object, "Workspace/") && f.Want.ID != "WorkspaceNotReleased" {
			path, mark = "../../docs/troubleshooting.md", "\n### "+f.Want.ID+"\n"
		}
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), mark) {
			t.Errorf("%s lacks %q", path, mark)
		}
	}
}
