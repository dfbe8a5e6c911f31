// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestRestarts: the doctor names a container of the release that failed in the last day, with its end and the command that
// shows its log.
func TestRestarts(t *testing.T) {
	type ended struct {
		namespace, app string
		ago            time.Duration
		code           int64
		reason         string
		restarts       int64
		waits          bool
	}
	const controllerLogs = "kubectl logs p --container=c --namespace=modelberth-system --previous"
	warning := func(evidence, fix string) []Finding {
		return []Finding{{ID: "ContainerRestarted", Severity: Warning, Object: "Pod/modelberth-system/p", Evidence: evidence, Fix: fix}}
	}
	cases := []struct {
		reason string
		pod    ended
		want   []Finding
	}{
		{
			"the controller panicked an hour ago",
			ended{"modelberth-system", product, time.Hour, 2, "Error", 3, false},
			warning("container c last ended at 2026-11-24T11:00:00Z with exit code 2 (Error); its number of restarts is 3", controllerLogs),
		},
		{
			"the controller had too little memory",
			ended{"modelberth-system", product, 24 * time.Hour, 137, outOfMemory, 1, false},
			warning("container c last ended at 2026-11-23T12:00:00Z with exit code 137 (OOMKilled); its number of restarts is 1",
				controllerLogs+"; if the load is normal, raise resources.limits.memory of the chart"),
		},
		{
			"a child of the container was killed, and the container ended without an error",
			ended{"modelberth-system", product, time.Hour, 0, outOfMemory, 1, false},
			warning("container c last ended at 2026-11-24T11:00:00Z with exit code 0 (OOMKilled); its number of restarts is 1",
				controllerLogs+"; if the load is normal, raise resources.limits.memory of the chart"),
		},
		{
			"a router had too little memory",
			ended{"modelberth-system", router, time.Hour, 137, outOfMemory, 1, false},
			warning("container c last ended at 2026-11-24T11:00:00Z with exit code 137 (OOMKilled); its number of restarts is 1",
				controllerLogs+"; if the load is normal, raise router.resources.limits.memory of the chart"),
		},
		{
			"a router that waits for its next start, which no other check names",
			ended{"modelberth-system", router, time.Minute, 1, "Error", 9, true},
			warning("container c last ended at 2026-11-24T11:59:00Z with exit code 1 (Error); its number of restarts is 9", controllerLogs),
		},
		{"a controller that waits, which ControllerCrashes names", ended{"modelberth-system", product, time.Minute, 1, "Error", 9, true}, nil},
		{"more than a day ago", ended{"modelberth-system", product, 24*time.Hour + time.Second, 2, "Error", 3, false}, nil},
		{"asked to stop, by a probe or a person", ended{"modelberth-system", product, time.Hour, 0, "Completed", 1, false}, nil},
		{"its machine restarted, by containerd", ended{"modelberth-system", product, time.Hour, 255, "Unknown", 1, false}, nil},
		{"its machine restarted, by the kubelet", ended{"modelberth-system", product, time.Hour, 137, "ContainerStatusUnknown", 1, false}, nil},
		{"a tenant's pod with the label of a router", ended{"team-a", router, time.Hour, 2, "Error", 3, false}, nil},
		{"another pod in the namespace", ended{"modelberth-system", "prometheus", time.Hour, 2, "Error", 3, false}, nil},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			s := cluster(t, "aks")
			state := map[string]any{"running": map[string]any{}}
			if c.pod.waits {
				state = map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff"}}
			}
			pod := unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod",
				"metadata": map[string]any{"namespace": c.pod.namespace, "name": "p", "labels": map[string]any{appName: c.pod.app}},
				"status": map[string]any{"containerStatuses": []any{map[string]any{
					"name": "c", "restartCount": c.pod.restarts, "state": state,
					"lastState": map[string]any{"terminated": map[string]any{
						"exitCode": c.pod.code, "reason": c.pod.reason, "finishedAt": s.Now.Add(-c.pod.ago).Format(time.RFC3339),
					}},
				}}},
			}}
			s.Objects = append(s.Objects, pod, pod) // as with both labels of the controller
			e := newExamination(s)
			checkRestarts(e)
			if diff := cmp.Diff(c.want, e.findings); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
