// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

// TestMachineGetsReadyAlthoughTheCacheLags holds each write back once and shows each node late once.
// Passes come as they would from a controller: when a pass asks for one, or when the claim changed.
func TestMachineGetsReadyAlthoughTheCacheLags(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("any"), "any", nil)
	missing := apierrors.NewNotFound(corev1.Resource("nodes"), "any")
	tests := []struct {
		reason string
		fault  func(once func(error) error) interceptor.Funcs
	}{
		{"nothing lags", func(func(error) error) interceptor.Funcs { return interceptor.Funcs{} }},
		{"the node that was just made does not show", func(once func(error) error) interceptor.Funcs {
			return interceptor.Funcs{Get: func(
				ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
			) error {
				if _, ok := object.(*corev1.Node); ok {
					if err := once(missing); err != nil {
						return err
					}
				}
				return inner.Get(ctx, key, object, options...)
			}}
		}},
		{"the node has changed since it was read", func(once func(error) error) interceptor.Funcs {
			return interceptor.Funcs{SubResourceUpdate: func(
				ctx context.Context, inner client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption,
			) error {
				if _, ok := object.(*corev1.Node); ok {
					if err := once(conflict); err != nil {
						return err
					}
				}
				return inner.SubResource(sub).Update(ctx, object, options...)
			}}
		}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			count := 0
			once := func(err error) error {
				count++
				if count > 1 {
					return nil
				}
				return err
			}
			claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "chat-aaaa", UID: "claim"}}
			k := &Karpenter{
				client: interceptor.NewClient(newServer(t, claim), test.fault(once)),
				script: map[target]Behaviour{}, seen: map[types.UID]owner{},
			}
			drive(t, k, claim)
			if !claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
				t.Errorf("the claim rests at %+v, want it initialised", claim.Status.Conditions)
			}
		})
	}
}

// drive passes over a claim for as long as something asks for it, and leaves it as it is then.
func drive(t *testing.T, k *Karpenter, claim *karpv1.NodeClaim) {
	t.Helper()
	key := client.ObjectKeyFromObject(claim)
	for range 20 {
		before := claim.ResourceVersion
		result, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		if getErr := k.client.Get(t.Context(), key, claim); getErr != nil {
			t.Fatal(getErr)
		}
		if err == nil && result.IsZero() && claim.ResourceVersion == before {
			return
		}
	}
	t.Error("the claim does not come to rest")
}

func newServer(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, nodeclaim.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&karpv1.NodeClaim{}, &corev1.Node{}).Build()
}
