// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/wake"
)

func setOfWorkspaces(t *testing.T, annotations, inference string) *unstructured.Unstructured {
	t.Helper()
	objects, err := parse(fmt.Appendf(nil, "apiVersion: kaito.sh/v1beta1\nkind: InferenceSet\nmetadata: {name: chat, namespace: team-a}\n"+
		"spec: {template: {metadata: {annotations: {%s}}, %s}}\n", annotations, inference))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, inference)
	}
	return objects[0]
}

// TestAllowedOfSets requests forbidden and allowed things in a set's template.
func TestAllowedOfSets(t *testing.T) {
	limited(t)
	tests := []struct {
		reason, annotations, inference string
		want                           bool
	}{
		{"a preset", "", preset, true},
		{"a template with an approved image", "", "inference: {template: {spec: {" + container + "}}}", true},
		{"another image", "", "inference: {template: {spec: {containers: [{name: a, image: other.example/a}]}}}", false},
		{"another engine's image", "", "inference: {preset: {name: m}, engine: {image: other.example/a}}", false},
		{"a load balancer for each", "kaito.sh/enablelb: 'True'", preset, false},
		{"another ServiceAccount", "", "inference: {preset: {name: m}, pod: {serviceAccountName: admin}}", false},
		{"a directory of the node", "", "inference: {template: {spec: {" + container + ", volumes: [{name: v, hostPath: {path: /etc}}]}}}", false},
		{"pods of another set", "", "inference: {preset: {name: m}, pod: {labels: {inferenceset.kaito.sh/created-by: other}}}", false},
		{"machines of others", "", "inference: {preset: {name: m}, pod: {tolerations: [{key: modelberth.dev/workspace-uid, operator: Exists}]}}", false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			err := api.Create(t.Context(), setOfWorkspaces(t, test.annotations, test.inference), client.DryRunAll)
			if (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}

// TestRouterMayOnlyWake lets the router set its annotation on a set, and nothing else.
func TestRouterMayOnlyWake(t *testing.T) {
	const name = "modelberth-router"
	if err := bringIn(t.Context(), "router.yaml", discovery, "--set=router.enabled=true,router.hold.requests=10,router.image.repository=r"); err != nil {
		t.Fatal(err)
	}
	set := setOfWorkspaces(t, "", preset)
	set.SetName("woken")
	set.SetAnnotations(map[string]string{"other": "1"})
	if err := api.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	router := user(t, "system:serviceaccount:modelberth-system:"+name)
	patch := func(text string, options ...client.PatchOption) error {
		return router.Patch(t.Context(), set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, settle, true, func(context.Context) (bool, error) {
		last = patch(`{"spec":{"replicas":7}}`, client.DryRunAll)
		return apierrors.IsForbidden(last) || apierrors.IsInvalid(last), nil
	})
	if err != nil {
		t.Fatalf("waiting for the policy: %v; the last answer: %v", err, last)
	}
	for _, test := range []struct {
		reason, patch string
		passes        bool
	}{
		{"the first wake", `{"metadata":{"annotations":{"modelberth.dev/wake":"2026-01-01T00:00:00Z"}}}`, true},
		{"the next one", `{"metadata":{"annotations":{"modelberth.dev/wake":"2026-01-01T00:00:30Z"}}}`, true},
		{"what is no time", `{"metadata":{"annotations":{"modelberth.dev/wake":"soon"}}}`, false},
		{"replicas", `{"spec":{"replicas":3}}`, false},
		{"a template", `{"spec":{"template":{"inference":{"preset":{"name":"other"}}}}}`, false},
		{"another annotation", `{"metadata":{"annotations":{"modelberth.dev/spending-ceiling":"1"}}}`, false},
		{"another value of one", `{"metadata":{"annotations":{"other":"2"}}}`, false},
		{"one annotation less", `{"metadata":{"annotations":{"other":null}}}`, false},
		{"a label", `{"metadata":{"labels":{"a":"b"}}}`, false},
		{"a finalizer", `{"metadata":{"finalizers":["a.example/b"]}}`, false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if err := patch(test.patch); (err == nil) != test.passes {
				t.Errorf("%v, want it to pass: %t", err, test.passes)
			}
		})
	}
	other := setOfWorkspaces(t, "", preset)
	other.SetName("made")
	if err := router.Create(t.Context(), other); err == nil {
		t.Error("the router made a set")
	}
	waker, err := wake.New(asUser(name), slog.New(slog.DiscardHandler), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = waker.Run(ctx) }()
	began := time.Now()
	waker.Wake(&models.Owner{Namespace: "team-a", Name: "woken"})
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
		if err := api.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return false, err
		}
		at, err := time.Parse(time.RFC3339, set.GetAnnotations()["modelberth.dev/wake"])
		return err == nil && at.After(began.Add(-2*time.Second)), err
	})
	if err != nil {
		t.Errorf("the annotation is %v: %v", set.GetAnnotations(), err)
	}
}

// discovery are the rights of every account, for those without another role.
const discovery = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: accounts-discover}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:discovery"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: accounts}]
`

// asUser is the configuration of a ServiceAccount of the release's namespace, with the chart's roles alone.
func asUser(account string) *rest.Config {
	config := rest.CopyConfig(api.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:modelberth-system:" + account, Groups: []string{"accounts"}}
	return config
}
