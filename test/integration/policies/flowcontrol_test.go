// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"net/http"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// TestRequestsTakeTheirOwnShare sends requests to the API server and reads their priority level from the answers.
func TestRequestsTakeTheirOwnShare(t *testing.T) {
	if err := bringIn(t.Context(), "flowcontrol.yaml", everybody, "--set=flowControl.shares=40"); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		reason, user, path, want string
	}{
		{
			reason: "a purchase, without a namespace",
			user:   controller, path: "/apis/karpenter.sh/v1/nodeclaims", want: "modelberth",
		},
		{
			reason: "the objects of a namespace",
			user:   controller, path: "/api/v1/namespaces/team-a/services", want: "modelberth",
		},
		{
			reason: "leader election does not wait behind them",
			user:   controller, path: "/apis/coordination.k8s.io/v1/namespaces/modelberth-system/leases/modelberth-controller",
			want: "leader-election",
		},
		{
			reason: "Leases elsewhere are no leader election of this installation",
			user:   controller, path: "/apis/coordination.k8s.io/v1/namespaces/team-a/leases/a", want: "modelberth",
		},
		{
			reason: "another ServiceAccount of the namespace takes nothing from the share",
			user:   "system:serviceaccount:modelberth-system:stranger", path: "/api/v1/namespaces/team-a/services", want: "workload-low",
		},
		{
			reason: "a ServiceAccount with the controller's name elsewhere",
			user:   "system:serviceaccount:team-a:modelberth", path: "/api/v1/namespaces/team-a/services", want: "workload-low",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			var got string
			// The API server learns of new levels by a watch.
			err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
				var err error
				got, err = levelOf(ctx, test.user, test.path)
				return got == test.want, err
			})
			if err != nil {
				t.Errorf("%s by %s took the level %q, want %q: %v", test.path, test.user, got, test.want, err)
			}
		})
	}
}

// levelOf returns the name of the priority level under which the API server answers a user's GET.
func levelOf(ctx context.Context, user, path string) (string, error) {
	config := rest.CopyConfig(api.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := transport.Do(request)
	if err != nil {
		return "", err
	}
	if err := response.Body.Close(); err != nil {
		return "", err
	}
	var levels flowcontrolv1.PriorityLevelConfigurationList
	if err := api.List(ctx, &levels); err != nil {
		return "", err
	}
	for i := range levels.Items {
		if string(levels.Items[i].UID) == response.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID) {
			return levels.Items[i].Name, nil
		}
	}
	return "", nil
}
