// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/crd"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// TestWake wakes sets each second and checks the writes: one per interval and set, and another one soon after a
// failure.
func TestWake(t *testing.T) {
	cases := []struct {
		reason string
		fails  int // this many writes
		sets   []string
		want   []string
	}{
		{"one set", 0, []string{"a"}, []string{"0s a", "30s a", "1m0s a"}},
		{"two sets", 0, []string{"a", "b"}, []string{"0s a", "0s b", "30s a", "30s b", "1m0s a", "1m0s b"}},
		{"writes that fail", 2, []string{"a"}, []string{"0s a", "5s a", "10s a", "40s a"}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var got []string
				w := with(func(_ context.Context, set Set, at time.Time) error {
					got = append(got, fmt.Sprintf("%s %s", at.Sub(start), set.Name))
					if len(got) <= c.fails {
						return errors.New("no")
					}
					return nil
				}, slog.New(slog.DiscardHandler), clock.RealClock{})
				ctx, cancel := context.WithTimeout(t.Context(), 65*time.Second)
				defer cancel()
				for ended := time.After(65*time.Second - 1); ; {
					for _, name := range c.sets {
						w.Wake(&models.Owner{Namespace: "ns", Name: name})
					}
					running, stop := context.WithTimeout(ctx, time.Second)
					if err := w.Run(running); err != nil {
						t.Error(err)
					}
					stop()
					select {
					case <-ended:
						if diff := cmp.Diff(c.want, got); diff != "" {
							t.Errorf("writes (-want +got):\n%s", diff)
						}
						return
					default:
					}
				}
			})
		})
	}
}

// TestWakeNeverBlocks: Wake returns even if nothing is written, and drops sets when the queue is full.
func TestWakeNeverBlocks(t *testing.T) {
	w := with(nil, slog.New(slog.DiscardHandler), clock.RealClock{})
	for i := range 2 * mostWaiting {
		w.Wake(&models.Owner{Namespace: "ns", Name: fmt.Sprint(i)})
	}
	if len(w.asked) != mostWaiting {
		t.Errorf("%d sets are in the queue, want %d", len(w.asked), mostWaiting)
	}
}

// TestCheckFields: while the API server prunes fields, there is no write, because it would lose them for good.
func TestCheckFields(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../../charts/modelberth/files/crds/kaito.sh_inferencesets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reason string
		change func(*unstructured.Unstructured)
		want   string
	}{
		{"the definition of this version", func(*unstructured.Unstructured) {}, ""},
		{
			"another definition", func(d *unstructured.Unstructured) { unstructured.RemoveNestedField(d.Object, "spec", "versions") },
			"the CustomResourceDefinition inferencesets.kaito.sh lacks spec and 1 more field: have an administrator apply the definition of this version",
		},
		{
			"it cannot be read", func(d *unstructured.Unstructured) { d.SetName("other") },
			`checking for pruned fields: customresourcedefinitions.apiextensions.k8s.io "inferencesets.kaito.sh" not found`,
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			definition := crd.Object()
			if err := yaml.Unmarshal(text, &definition.Object); err != nil {
				t.Fatal(err)
			}
			test.change(definition)
			got := ""
			if err := checkFields(t.Context(), fake.NewClientBuilder().WithObjects(definition).Build()); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
