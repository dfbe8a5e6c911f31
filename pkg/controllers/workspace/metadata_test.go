// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
)

// TestMetadataWarningBlocksNothing: a node class is used even if it exposes metadata or cannot be read.
func TestMetadataWarningBlocksNothing(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"}
	class := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"metadataOptions": map[string]any{"httpPutResponseHopLimit": int64(2)},
	}}}
	class.SetGroupVersionKind(gvk)
	class.SetName("gpu")
	for _, test := range []struct {
		reason string
		err    error
		want   []status.Event
	}{
		{"pods are within two hops", nil, []status.Event{{
			IsWarning: true, Reason: "MetadataExposed", Message: `EC2NodeClass "gpu" lets pods read the credentials of the machine's role from ` +
				"the metadata service, 2 hops away: set spec.metadataOptions.httpPutResponseHopLimit of the class to 1",
		}}},
		{"the API server does not answer", errors.New("timeout"), nil},
	} {
		t.Run(test.reason, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{gvk.GroupVersion()})
			mapper.Add(gvk, meta.RESTScopeRoot)
			kube := fake.NewClientBuilder().WithRESTMapper(mapper).WithObjects(class.DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
					if test.err != nil {
						return test.err
					}
					return c.Get(ctx, key, into, o...)
				},
			}).Build()
			r := New(Config{Client: kube, Live: kube, Catalog: noCatalog{}, Clock: testclock.NewFakePassiveClock(time.Unix(0, 0))})
			s := scope.New(&v1beta1.Workspace{})
			s.Exposed = r.preflight.MetadataWarning(t.Context(), v1beta1.NodeClassReference{Group: gvk.Group, Kind: gvk.Kind, Name: "gpu"})
			_, got := s.Status(nil, now)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
