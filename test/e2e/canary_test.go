// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// splits edits the template of one replica, and sends it none of the requests, and then all. The controller reads the
// routers with its own token, and finds both templates equal.
func (d *door) splits(t *testing.T, set types.NamespacedName) {
	patch := func(spec string) {
		kubectl(t, "patch", "inferenceset", set.Name, "--namespace="+set.Namespace, "--type=merge", "--patch", `{"spec": `+spec+`}`)
	}
	weigh := func(weight string) {
		patch(`{"updateStrategy": {"rollingUpdate": {"canaryWeight": ` + weight + `}}}`)
	}
	weigh("0")
	patch(`{"updateStrategy": {"rollingUpdate": {"rollback": {"comparison": {"minRequests": 30}}}}}`)
	patch(`{"template": {"inference": {"engine": {"env": [{"name": "CANARY", "value": "1"}]}}}}`)
	start := time.Now()
	canary := &v1beta1.InferenceSet{}
	waitFor(t, "a ready canary", readyTimeout, func(ctx context.Context) (bool, error) {
		err := local.client.Get(ctx, set, canary)
		return canary.Status.Canary != nil && canary.Status.ReadyReplicas == 2, err
	})
	elapsed(t, "from an edit to a ready canary", start)
	pods := enginePods(t, set)
	canaries := map[string]bool{}
	for _, ws := range replicasOf(t, set) {
		canaries[ws.Name] = ws.Labels[v1beta1.LabelTemplateHash] == canary.Status.Canary.TemplateHash
	}
	for weight, wantCanary := range map[string]bool{"0": false, "100": true} {
		weigh(weight)
		waitFor(t, "the split with the weight "+weight, seenTimeout, func(ctx context.Context) (bool, error) {
			before := d.predicted(t, pods)
			d.sendMany(ctx, t, 40)
			after, isServing := d.predicted(t, pods), map[bool]bool{}
			for i := range pods {
				isCanary := canaries[pods[i].Labels[v1beta1.LabelWorkspace]]
				isServing[isCanary] = isServing[isCanary] || after[i] > before[i]
			}
			return isServing[wantCanary] && !isServing[!wantCanary], nil
		})
	}
	weigh("50") // counts under other weights do not add up
	start = time.Now()
	waitFor(t, "the end of the comparison", readyTimeout, func(ctx context.Context) (bool, error) {
		d.sendMany(ctx, t, 20)
		err := local.client.Get(ctx, set, canary)
		return canary.Status.Rollout != nil && canary.Status.Rollout.ComparedTime != nil, err
	})
	elapsed(t, "from the first request to the end of the comparison", start)
	patch(`{"updateStrategy": {"rollingUpdate": {"canaryWeight": null, "rollback": {"comparison": null}}}}`)
	waitFor(t, "the end of the split", seenTimeout, func(ctx context.Context) (bool, error) {
		ended := &v1beta1.InferenceSet{}
		err := local.client.Get(ctx, set, ended)
		return ended.Status.Canary == nil, err
	})
}

// sendMany sends requests to both routers, and fails the test for each that fails.
func (d *door) sendMany(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for range n {
		d.client.CloseIdleConnections() // the next connection may reach the other router
		if got, err := d.ask(ctx, keyOfTeam, http.MethodPost, chatPath, chat("pair", 1, false)); err != nil || got.status != http.StatusOK {
			t.Errorf("a request to a set with a canary failed: %v, %+v", err, got)
		}
	}
}

// predicted returns the number of tokens that each engine has generated, by its own metrics.
func (d *door) predicted(t *testing.T, pods []corev1.Pod) []int {
	t.Helper()
	var out []int
	for i := range pods {
		out = append(out, d.gauge(t, &pods[i], "tokens_predicted_total"))
	}
	return out
}
