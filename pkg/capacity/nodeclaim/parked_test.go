// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

// TestParkedPool: some claims name a NodePool, which must exist before them.
func TestParkedPool(t *testing.T) {
	aws := v1beta1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	long := v1beta1.NodeClassReference{Group: class.Group, Kind: class.Kind, Name: strings.Repeat("a", 51) + ".b"}
	foreign := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "modelberth-default"}}
	for _, test := range []struct {
		reason  string
		class   v1beta1.NodeClassReference
		there   []client.Object
		want    string
		created int
	}{
		{"Azure waits for machines of claims without a pool", class, nil, "modelberth-default", 1},
		{"one of that name is left as it is", class, []client.Object{foreign}, "modelberth-default", 0},
		{"a label has room for 63 characters, and ends with none that it may not", long, nil, "modelberth-" + strings.Repeat("a", 51), 1},
		{"AWS answers at once", aws, nil, "", 0},
	} {
		t.Run(test.reason, func(t *testing.T) {
			var order []string
			c := interceptor.NewClient(newClient(t, test.there...), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
					err := c.Create(ctx, object, opts...)
					if err == nil {
						order = append(order, strings.TrimPrefix(object.GetObjectKind().GroupVersionKind().Kind+"/"+object.GetName(), "/"))
					}
					return err
				},
			})
			provisioner := nodeclaim.New(c, c, test.class)
			for attempt := range int32(2) {
				req := request(1, "A")
				req.Attempt, req.Owner.UID = attempt+1, "uid-"+req.Owner.UID[:attempt]
				if _, err := provisioner.Ensure(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			claims, pools := &karpv1.NodeClaimList{}, &karpv1.NodePoolList{}
			if err := errors.Join(c.List(t.Context(), claims), c.List(t.Context(), pools)); err != nil {
				t.Fatal(err)
			}
			if len(claims.Items) != 2 || len(order) != 2+test.created {
				t.Errorf("%d claims, and %v was created, want 2 claims and %d pools", len(claims.Items), order, test.created)
			}
			for _, claim := range claims.Items {
				if got := claim.Labels[karpv1.NodePoolLabelKey]; got != test.want {
					t.Errorf("the claim names NodePool %q, want %q", got, test.want)
				}
			}
			if test.created > 0 && !strings.HasSuffix(order[0], test.want) {
				t.Errorf("created in the order %v, want the NodePool first", order)
			}
		})
	}
}

func TestNothingIsBoughtWithoutTheParkedPool(t *testing.T) {
	c := interceptor.NewClient(newClient(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			if _, isPool := object.(*karpv1.NodePool); isPool {
				return apierrors.NewForbidden(nodeclaim.GroupVersion().WithResource("nodepools").GroupResource(), object.GetName(), nil)
			}
			return c.Create(ctx, object, opts...)
		},
	})
	_, err := nodeclaim.New(c, c, class).Ensure(t.Context(), request(1, "A"))
	if !apierrors.IsForbidden(err) || len(names(t, c)) > 0 {
		t.Errorf("error %v, claims %v, want a refusal and no claim", err, names(t, c))
	}
}

func TestParkedPoolGolden(t *testing.T) {
	c := newClient(t)
	if _, err := nodeclaim.New(c, c, class).Ensure(t.Context(), request(1, "A")); err != nil {
		t.Fatal(err)
	}
	pool := &karpv1.NodePool{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "modelberth-default"}, pool); err != nil {
		t.Fatal(err)
	}
	pool.ResourceVersion, pool.Status = "", karpv1.NodePoolStatus{}
	pool.SetGroupVersionKind(nodeclaim.GroupVersion().WithKind("NodePool"))
	got, err := yaml.Marshal(pool)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "parked-pool.yaml")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("NodePool (-want +got):\n%s", diff)
	}
}
