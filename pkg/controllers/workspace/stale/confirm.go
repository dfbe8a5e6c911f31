// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Confirm returns a conflict unless the API server has these objects in the versions that a cache showed. It makes one
// request per object.
func Confirm(ctx context.Context, live client.Reader, shown ...client.Object) error {
	for _, object := range shown {
		kind := reflect.TypeOf(object).Elem()
		newest, isObject := reflect.TypeAssert[client.Object](reflect.New(kind))
		if !isObject {
			return fmt.Errorf("%s is not an object with metadata", kind)
		}
		if err := client.IgnoreNotFound(live.Get(ctx, client.ObjectKeyFromObject(object), newest)); err != nil {
			return fmt.Errorf("reading %s %s: %w", kind.Name(), object.GetName(), err)
		}
		if newest.GetUID() != object.GetUID() || newest.GetResourceVersion() != object.GetResourceVersion() {
			return apierrors.NewConflict(schema.GroupResource{Resource: kind.Name()}, object.GetName(), errors.New("the cache lags"))
		}
	}
	return nil
}
