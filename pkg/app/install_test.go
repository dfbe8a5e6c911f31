// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// asked calls a function after a number of questions.
type asked struct {
	meta.RESTMapper
	left int
	then func()
}

func (a *asked) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	a.left--
	if a.left == 0 {
		a.then()
	}
	return a.RESTMapper.RESTMapping(kind, versions...)
}

// TestInstallWatch: a restart helps only if the process can use the version that the API server has.
func TestInstallWatch(t *testing.T) {
	route := schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}
	for _, c := range []struct {
		reason   string
		served   string
		versions []string
		want     error
	}{
		{"the version", "v1", []string{"v1"}, errInstalled},
		{"an older version only", "v1beta1", []string{"v1"}, nil},
		{"any version", "v1beta1", nil, errInstalled},
	} {
		t.Run(c.reason, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: route.Group, Version: c.served}})
			mapper.Add(route.WithVersion(c.served), meta.RESTScopeNamespace)
			watch := &installWatch{
				mapper: &asked{RESTMapper: mapper, left: 3, then: cancel}, kind: route, versions: c.versions, every: time.Millisecond,
			}
			if err := watch.Start(ctx); !errors.Is(err, c.want) {
				t.Errorf("it ends with %v, want %v", err, c.want)
			}
		})
	}
}
