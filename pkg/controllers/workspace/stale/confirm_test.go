// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestConfirm(t *testing.T) {
	node := func(name, uid, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
	}
	away := errors.New("nobody answers")
	tests := []struct {
		reason     string
		shown      []client.Object
		failure    error
		isConflict bool
	}{
		{"the cache shows the same", []client.Object{node("a", "1", "7"), node("b", "2", "8")}, nil, false},
		{"nothing is to be confirmed", nil, away, false},
		{"one was written since", []client.Object{node("a", "1", "7"), node("b", "2", "6")}, nil, true},
		{"one was deleted and created again", []client.Object{node("a", "0", "7")}, nil, true},
		{"one is gone", []client.Object{node("c", "3", "9")}, nil, true},
		{"the API server does not answer", []client.Object{node("a", "1", "7")}, away, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			live := fake.NewClientBuilder().WithObjects(node("a", "1", "7"), node("b", "2", "8")).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
					if test.failure != nil {
						return test.failure
					}
					return c.Get(ctx, key, into, o...)
				},
			}).Build()
			err := Confirm(t.Context(), live, test.shown...)
			isFailed := test.failure != nil && len(test.shown) > 0
			if apierrors.IsConflict(err) != test.isConflict || errors.Is(err, away) != isFailed || err != nil != (test.isConflict || isFailed) {
				t.Errorf("error %v, want a conflict: %v", err, test.isConflict)
			}
		})
	}
}
