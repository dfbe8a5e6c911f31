// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMetricsNeedPermission scrapes the controller's metrics as Prometheus does: over TLS, with the token of a
// ServiceAccount that has the chart's role for it.
func TestMetricsNeedPermission(t *testing.T) {
	ns := namespace(t)
	kubectl(t, "create", "serviceaccount", "prometheus", "--namespace="+ns)
	kubectl(t, "create", "clusterrolebinding", ns+"-metrics", "--clusterrole="+release+"-metrics-reader", "--serviceaccount="+ns+":prometheus")
	t.Cleanup(func() {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ns + "-metrics"}}
		if err := local.client.Delete(context.WithoutCancel(t.Context()), binding); err != nil {
			t.Error(err)
		}
	})
	const url = "https://" + release + "-metrics." + systemNamespace + ".svc:8443/metrics"
	answer := func(account string) string {
		pod := startCurl(t, ns, "--insecure", "--max-time", "30", "--write-out", "%{http_code}", url,
			"--header", "Authorization: Bearer "+strings.TrimSpace(kubectl(t, "create", "token", account, "--namespace="+ns)))
		out, _ := awaitCurl(t, pod, seenTimeout)
		return out
	}
	if got := answer("default"); !strings.HasSuffix(got, "403") || strings.Contains(got, "modelberth_") {
		t.Errorf("a ServiceAccount without the role was not refused: %s", got)
	}
	if got := answer("prometheus"); !strings.HasSuffix(got, "200") || !strings.Contains(got, "\nmodelberth_capacity_cooldowns_active ") {
		t.Errorf("Prometheus did not get the metrics: %s", got)
	}
}
