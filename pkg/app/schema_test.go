// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/crd"
)

// lacking returns definitions after a watch has shown the definition of Workspaces, either complete or without any
// field.
func lacking(t *testing.T, isComplete bool) *definitions {
	t.Helper()
	definition := crd.Object()
	if isComplete {
		text, err := os.ReadFile(filepath.FromSlash("../../charts/modelberth/files/crds/kaito.sh_workspaces.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &definition.Object); err != nil {
			t.Fatal(err)
		}
	}
	definition.SetName(crd.Workspaces)
	out := &definitions{fields: crd.NewDefinitions(func(string, []string) {})}
	if _, err := out.fields.Cache(crd.Workspaces).Transform(definition); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPrunedObjectsAreLookedAt checks that a changed definition requests passes over its objects, because the API
// server need not send them again.
func TestPrunedObjectsAreLookedAt(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "chat"}},
		&v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "code"}},
		&v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "fleet"}},
	).Build()
	definition := crd.Object()
	definition.SetName(crd.Workspaces)
	tests := []struct {
		reason     string
		isComplete bool
		list       client.ObjectList
		want       []types.NamespacedName
	}{
		{"a complete definition changes nothing", true, &v1beta1.WorkspaceList{}, nil},
		{"every Workspace", false, &v1beta1.WorkspaceList{}, []types.NamespacedName{
			{Namespace: "a", Name: "chat"}, {Namespace: "b", Name: "code"},
		}},
		{"every InferenceSet", false, &v1beta1.InferenceSetList{}, []types.NamespacedName{{Namespace: "a", Name: "fleet"}}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			at := site{cached: cached, definitions: lacking(t, test.isComplete)}
			if diff := cmp.Diff(test.want, at.whilePruned(t.Context(), definition, test.list)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefinitionsHaveADeadline checks that a leader without permission to watch the definitions does not keep the Lease
// forever.
func TestDefinitionsHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, begun := lacking(t, true), time.Now()
		d.caches = map[string]cache.Cache{crd.InferenceSets: forbidden{}, crd.Workspaces: forbidden{}}
		err := d.watch(t.Context(), nil)
		const want = "watching CustomResourceDefinition inferencesets.kaito.sh: context deadline exceeded"
		if took := time.Since(begun); err == nil || err.Error() != want || took != syncDeadline {
			t.Errorf("error %v after %s, want %s after %s", err, took, want, syncDeadline)
		}
	})
}

// forbidden is a cache that never fills.
type forbidden struct{ cache.Cache }

// GetInformer implements cache.Cache.
func (forbidden) GetInformer(ctx context.Context, _ client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
