// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/test/privileges"
)

// rarelyUsed are privileges that the tests before this one need not lead to, and why the controller
// has them.
func rarelyUsed() privileges.Rare {
	return privileges.Rare{
		"kaito.sh workspaces/finalizers update":    "asked for by clusters that check who may block an owner's deletion",
		"kaito.sh inferencesets/finalizers update": "as for Workspaces",
		"keda.sh scaledobjects list":               "in clusters with KEDA",
		"keda.sh scaledobjects watch":              "in clusters with KEDA",
		"kaito.sh inferencesets/scale patch":       "when the load of a set changes",
		"kaito.sh workspaces get":                  "when a machine is left of a Workspace that is gone",
		"apps controllerrevisions delete":          "a Workspace keeps its latest ten",
		"apps controllerrevisions get":             "when two replicas make the same one",
		" services get":                            "when somebody was first to make one of that name",
		"apps statefulsets get":                    "when somebody was first to make one of that name",
		"apps deployments get":                     "when KAITO's controller served a Workspace before",
		"networking.k8s.io networkpolicies get":    "when somebody was first to make one of that name",
		"karpenter.sh nodeclaims get":              "when a claim of that name exists already",
		" events patch":                            "when an event happens again",
		" pods patch":                              "when engines on several machines were held back until they are isolated",
		"coordination.k8s.io leases create":        "once for each installation",
		"policy poddisruptionbudgets create":       "where several pods each serve",
		"policy poddisruptionbudgets patch":        "where several pods each serve",
		"policy poddisruptionbudgets get":          "where several pods each serve",
	}
}

// expectPrivileges compares the controller's rights with its requests in all tests so far: nothing was refused, and no
// privilege lies idle.
func expectPrivileges(t *testing.T) {
	requests, err := auditLog()
	if err != nil {
		t.Fatal(err)
	}
	isOther := otherPods(t)
	requests = slices.DeleteFunc(requests, func(r privileges.Request) bool { return r.IsForbidden() && isOther(&r) })
	for _, problem := range privileges.Compare(granted(t), requests, rarelyUsed()) {
		t.Error(problem)
	}
}

// granted is what the controller's roles allow.
func granted(t *testing.T) privileges.Granted {
	t.Helper()
	out := privileges.Granted{}
	cluster := &rbacv1.ClusterRole{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Name: release}, cluster); err != nil {
		t.Fatal(err)
	}
	out.Add("", cluster.Rules)
	for namespace, name := range map[string]string{systemNamespace: release, "default": release + "-nodeclaim-events"} {
		role := &rbacv1.Role{}
		if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, role); err != nil {
			t.Fatal(err)
		}
		out.Add(namespace, role.Rules)
	}
	return out
}

// otherPods finds the requests by pods of previous configurations and installations. If a test reverts its
// configuration, the role changes first, and a replica with another back end may lead for a moment. If a test uninstalls
// the release, the role may go before the pods. The ReplicaSet of a later installation may have the same name, but it is
// newer. The integration tests compare the role of each back end.
func otherPods(t *testing.T) func(r *privileges.Request) bool {
	t.Helper()
	current := &appsv1.Deployment{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: systemNamespace, Name: release}, current); err != nil {
		t.Fatal(err)
	}
	sets := &appsv1.ReplicaSetList{}
	if err := local.client.List(t.Context(), sets, client.InNamespace(systemNamespace)); err != nil {
		t.Fatal(err)
	}
	since := map[string]time.Time{}
	for i := range sets.Items {
		set := &sets.Items[i]
		if backEndOf(&set.Spec.Template) == backEndOf(&current.Spec.Template) {
			since[set.Name] = set.CreationTimestamp.Time
		}
	}
	return func(r *privileges.Request) bool {
		pod := r.Pod()
		created, isSame := since[pod[:max(strings.LastIndex(pod, "-"), 0)]]
		return !isSame || r.StageTime.Before(created)
	}
}

func backEndOf(template *corev1.PodTemplateSpec) string {
	for _, argument := range template.Spec.Containers[0].Args {
		if backEnd, found := strings.CutPrefix(argument, "--capacity-backend="); found {
			return backEnd
		}
	}
	return ""
}
