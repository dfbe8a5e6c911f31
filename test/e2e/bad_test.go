// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/doctor"
)

// verdict is the comment of a bad manifest about its fate: refused at apply with words of a message, or a condition
// that is not true with a reason.
type verdict struct {
	refused           string
	condition, reason string
}

func verdictOf(t *testing.T, text string) verdict {
	t.Helper()
	refused := regexp.MustCompile(`(?m)^# Refused: (.+)$`).FindStringSubmatch(text)
	condition := regexp.MustCompile(`(?m)^# Condition: (\w+) (\w+)$`).FindStringSubmatch(text)
	switch {
	case refused != nil && condition == nil:
		return verdict{refused: refused[1]}
	case condition != nil && refused == nil:
		return verdict{condition: condition[1], reason: condition[2]}
	}
	t.Fatal("the manifest's comment must have a line with either `# Refused: words` or `# Condition: Type Reason`")
	return verdict{}
}

// TestBadManifests applies every manifest of examples/bad. All of them share a namespace and stay
// until the end, so that none of them has been bought for when the others are done.
func TestBadManifests(t *testing.T) {
	ns := namespace(t)
	files, err := filepath.Glob(example("bad/*.yaml"))
	if err != nil || len(files) < 12 {
		t.Fatalf("there are %d bad manifests (%v), want the whole list of them", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := verdictOf(t, string(text))
			_, err = execute(t.Context(), local.kubectl, "apply", "--namespace="+ns, "--filename="+file)
			if want.refused != "" {
				if err == nil || !strings.Contains(err.Error(), want.refused) {
					t.Errorf("apply ended with %v, want it refused with: %s", err, want.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			key := types.NamespacedName{Namespace: ns, Name: name}
			condition := waitCondition(t, key, want.condition, want.reason, seenTimeout)
			t.Logf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
			if len(condition.Message) < 20 {
				t.Errorf("the message says too little: %q", condition.Message)
			}
			waitCondition(t, key, v1beta1.ConditionReady, want.reason, seenTimeout)
		})
	}
	t.Run("the doctor names them all", func(t *testing.T) { expectDoctor(t, ns, files) })
	t.Run("nothing is bought", func(t *testing.T) {
		list := &v1beta1.WorkspaceList{}
		if err := local.client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			local.ledger.expect(t, &list.Items[i], 0)
		}
	})
	t.Run("what belongs to others is untouched", func(t *testing.T) { expectForeign(t, ns) })
}

// expectDoctor runs the doctor on the cluster. It finds each bad Workspace with the reason of its manifest, and nothing
// else but the local cloud's missing network plug-in.
func expectDoctor(t *testing.T, ns string, files []string) {
	want := []string{"NetworkPolicyUncertain"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if verdict := verdictOf(t, string(text)); verdict.reason != "" {
			want = append(want, verdict.reason+" Workspace/"+ns+"/"+strings.TrimSuffix(filepath.Base(file), ".yaml"))
		}
	}
	text, code := tryBerth(t, "doctor", "--output=json")
	var diagnosis struct{ Findings []doctor.Finding }
	if err := json.Unmarshal([]byte(text), &diagnosis); err != nil {
		t.Fatalf("%v in: %s", err, text)
	}
	var got []string
	for i := range diagnosis.Findings {
		got = append(got, strings.TrimSpace(diagnosis.Findings[i].ID+" "+diagnosis.Findings[i].Object))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the doctor's findings differ (-want +got):\n%s", diff)
	}
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

// expectForeign checks that the objects under taken names are as their owner left them.
func expectForeign(t *testing.T, ns string) {
	objects := []client.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "service-name-taken"}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "statefulset-name-taken"}},
	}
	for _, object := range objects {
		if err := local.client.Get(t.Context(), keyOf(object), object); err != nil {
			t.Fatal(err)
		}
		var managers []string
		for _, entry := range object.GetManagedFields() {
			managers = append(managers, entry.Manager)
		}
		slices.Sort(managers)
		managers = slices.DeleteFunc(managers, func(m string) bool { return m == "kube-controller-manager" })
		if diff := cmp.Diff([]string{"kubectl-client-side-apply"}, managers); diff != "" {
			t.Errorf("%T %s was written by somebody else (-want +got):\n%s", object, object.GetName(), diff)
		}
		if owners := object.GetOwnerReferences(); len(owners) > 0 {
			t.Errorf("%T %s has got owners: %v", object, object.GetName(), owners)
		}
	}
}
