// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// noon is when the tests' requests begin.
func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func at(seconds float64) time.Time { return noon().Add(time.Duration(seconds * float64(time.Second))) }

// request returns a request received at a second and answered half a second later.
func request(user, verb, resource, subresource, namespace, name string, second float64) Request {
	r := Request{Verb: verb, Stage: "ResponseComplete", Received: at(second), Done: at(second + 0.5)}
	r.User.Username, r.Response.Code = user, http.StatusOK
	r.Object.Resource, r.Object.Subresource, r.Object.Namespace, r.Object.Name = resource, subresource, namespace, name
	return r
}

func claim(user, namespace, workspace string, second float64) Request {
	r := request(user, "create", "nodeclaims", "", "", "c-"+workspace, second)
	r.Sent.Metadata.Labels = map[string]string{
		v1beta1.LabelMachineWorkspaceName: workspace, v1beta1.LabelMachineWorkspaceNamespace: namespace,
	}
	return r
}

func status(workspace string, ready metav1.ConditionStatus, second float64) Request {
	r := request(controller, "patch", "workspaces", "status", "ns", workspace, second)
	r.Sent.Status.Conditions = []metav1.Condition{
		{Type: v1beta1.ConditionPlanned, Status: metav1.ConditionTrue}, {Type: v1beta1.ConditionReady, Status: ready},
	}
	return r
}

func refused(r Request) Request {
	r.Response.Code = http.StatusConflict
	return r
}

func TestCourse(t *testing.T) {
	for _, test := range []struct {
		reason   string
		requests []Request
		want     Course
	}{
		{
			"a Workspace goes from its creation to Ready",
			[]Request{
				request(administrator, "create", "workspaces", "", "ns", "a-1", 0), claim(controller, "ns", "a-1", 2),
				status("a-1", metav1.ConditionFalse, 3), request("hollow", "patch", "pods", "status", "ns", "a-1-0", 4), status("a-1", metav1.ConditionTrue, 5),
			},
			Course{Applied: Times{"a-1": at(0)}, Claimed: Times{"a-1": at(2.5)}, Serving: Times{"a-1": at(4.5)}, Ready: Times{"a-1": at(5.5)}},
		},
		{
			"the first of several counts, in whatever order they are booked",
			[]Request{claim(controller, "ns", "a", 3), claim(controller, "ns", "a", 2), status("a", metav1.ConditionTrue, 7), status("a", metav1.ConditionTrue, 9)},
			Course{Applied: Times{}, Claimed: Times{"a": at(2.5)}, Serving: Times{}, Ready: Times{"a": at(7.5)}},
		},
		{
			"what stands in for a Workspace is applied with its NodeClaim",
			[]Request{claim(administrator, "ns", "a", 1), request("hollow", "patch", "pods", "status", "ns", "a-0", 4)},
			Course{Applied: Times{"a": at(1)}, Claimed: Times{"a": at(1.5)}, Serving: Times{"a": at(4.5)}, Ready: Times{}},
		},
		{
			"refusals and other namespaces do not count",
			[]Request{
				refused(request(administrator, "create", "workspaces", "", "ns", "a", 0)), refused(claim(controller, "ns", "a", 1)),
				request(administrator, "create", "workspaces", "", "other", "a", 0), claim(controller, "other", "a", 1),
				request("hollow", "patch", "pods", "status", "other", "a-0", 2),
			},
			Course{Applied: Times{}, Claimed: Times{}, Serving: Times{}, Ready: Times{}},
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := NewCourse("ns")
			got.Add(test.requests)
			test.want.namespace = "ns"
			if diff := cmp.Diff(test.want, *got, cmp.AllowUnexported(Course{})); diff != "" {
				t.Errorf("course (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDelays(t *testing.T) {
	got := Delays(Times{"slow": at(0), "fast": at(1), "never": at(0)}, Times{"slow": at(9), "fast": at(3), "unknown": at(4)})
	if diff := cmp.Diff([]time.Duration{2 * time.Second, 9 * time.Second}, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
}

func TestSpan(t *testing.T) {
	if got, want := (Times{"b": at(3), "a": at(1), "c": at(2)}).span(), 2*time.Second; got != want {
		t.Errorf("three came within %s, want %s", got, want)
	}
	if got := (Times{}).span(); got != 0 {
		t.Errorf("nothing came within %s", got)
	}
}

func TestPercentile(t *testing.T) {
	upTo := func(n int) []time.Duration {
		var out []time.Duration
		for i := range n {
			out = append(out, time.Duration(i+1))
		}
		return out
	}
	for _, test := range []struct {
		reason string
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{"nothing has none", nil, 50, 0},
		{"one value is every percentile", upTo(1), 99, 1},
		{"the median of an even number is the lower of both", upTo(4), 50, 2},
		{"the median of an odd number is in the middle", upTo(5), 50, 3},
		{"two of 200 exceed the 99th percentile", upTo(200), 99, 198},
		{"99 % of few are all", upTo(10), 99, 10},
		{"nothing exceeds the 100th", upTo(200), 100, 200},
		{"the 0th is the first", upTo(3), 0, 1},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := Percentile(test.sorted, test.p); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestCount(t *testing.T) {
	tried := request(controller, "patch", "statefulsets", "", "ns", "a", 2)
	tried.URI = "/apis/apps/v1/namespaces/ns/statefulsets/a?dryRun=All&fieldManager=x"
	requests := []Request{
		tried,
		request(controller, "patch", "workspaces", "status", "ns", "early", 0.9),
		request(controller, "patch", "workspaces", "status", "ns", "a", 1),
		refused(request(controller, "patch", "workspaces", "status", "ns", "a", 2)),
		request(controller, "create", "nodeclaims", "", "", "c", 2),
		request(controller, "list", "nodeclaims", "", "", "", 2),
		request(controller, "get", "statefulsets", "", "ns", "a", 2),
		request(controller, "get", "", "", "", "", 2),
		request(controller, "watch", "nodes", "", "", "", 2),
		request(controller, "create", "events", "", "ns", "e", 2),
		request(controller, "update", "leases", "", "ns", "l", 2),
		request(controller, "get", "leases", "", "ns", "l", 2),
		request(administrator, "create", "workspaces", "", "ns", "b", 2),
		request(controller, "patch", "workspaces", "status", "ns", "late", 3),
	}
	want := Tally{
		Writes: 3, Reads: 4, Events: 1, Leases: 2, Watches: 1,
		Kinds: map[string]int{
			"patch workspaces/status": 2, "create nodeclaims": 1, "list nodeclaims": 1, "get statefulsets": 1, "get (discovery)": 1, "patch statefulsets, dry run": 1,
		},
	}
	if diff := cmp.Diff(want, Count(requests, controller, at(1), at(3))); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
}
