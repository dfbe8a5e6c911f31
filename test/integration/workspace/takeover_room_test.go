// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/takeover"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// refusesOurPods installs a policy against pods of this controller in a namespace. The returned function removes it.
func (w *world) refusesOurPods(t *testing.T, namespace string) (lift func()) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "no-pods-of-" + namespace}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "!('app.kubernetes.io/managed-by' in object.metadata.?labels.orValue({}))", Message: "no such pods here",
		}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}
	lift = func() {
		for _, object := range []client.Object{binding, policy} {
			if err := client.IgnoreNotFound(w.client.Delete(context.Background(), object)); err != nil {
				t.Errorf("deleting %T: %v", object, err)
			}
		}
	}
	t.Cleanup(lift)
	for _, object := range []client.Object{policy, binding} {
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the policy in force", func() (bool, string) {
		err := w.client.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		}, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "no such pods here"), "it admits a pod"
	})
	return lift
}

// retried has the Workspace looked at again before the controller would by itself.
func (s *served) retried(t *testing.T, number string) {
	t.Helper()
	s.patch(t, s.ws, func() { s.ws.Labels = map[string]string{"try": number} })
}

// nudge has Karpenter's stand-in look at the machines of a Workspace again, after a change of its script.
func (w *world) nudge(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	for _, claim := range w.claims(t, ws) {
		former := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "try", "again")
		if err := w.client.Patch(t.Context(), &claim, client.MergeFrom(former)); err != nil {
			t.Fatal(err)
		}
	}
}

// staysServed checks that KAITO's StatefulSet and Service have not changed.
func (s *served) staysServed(t *testing.T, before map[string]string) {
	t.Helper()
	after := s.exact(t)
	for _, name := range []string{"spec of StatefulSet chat", "all of Service chat", "spec of Pod chat-0"} {
		if before[name] == "" || before[name] != after[name] {
			t.Errorf("%s changed: %s became %s", name, before[name], after[name])
		}
	}
}

// TestKAITOsPodsStayWhileOursAreRefused has a policy refuse the pods of an edit: nothing is bought for them, and KAITO's
// StatefulSet is not deleted, even if the policy came after the purchase.
func TestKAITOsPodsStayWhileOursAreRefused(t *testing.T) {
	w := enter(t)
	for _, test := range []struct {
		reason string
		// comesLate: the policy comes when the machine has been requested.
		comesLate bool
		bought    int
	}{
		{"before the purchase", false, 0},
		{"after the purchase", true, 1},
	} {
		t.Run(test.reason, func(t *testing.T) {
			s := w.kaitoServing(t, takeover.Karpenter, 0)
			before, address := s.exact(t), s.address(t)
			w.begin(t, faults.NewRecorder())
			w.berth(t, s.ws.Namespace, "adopt", s.ws.Name)
			s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
			var lift func()
			if test.comesLate {
				w.karpenter.Script(s.ws.Resource.InstanceType, sim.Hangs)
				t.Cleanup(func() { w.karpenter.Script(s.ws.Resource.InstanceType, sim.Works) })
				s.edit(t)
				eventually(t, "a machine requested", func() (bool, string) { return w.karpenter.ClaimsEver(s.ws.UID) == 1, saying(s.ws) })
				lift = w.refusesOurPods(t, s.ws.Namespace)
				w.karpenter.Script(s.ws.Resource.InstanceType, sim.Works)
				w.nudge(t, s.ws)
			} else {
				lift = w.refusesOurPods(t, s.ws.Namespace)
				s.edit(t)
			}
			s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonPodRefused)
			for _, want := range []string{"KAITO's pods stay", "no such pods here", "revert the edit"} {
				if got := condition(s.ws, v1beta1.ConditionReady).Message; !strings.Contains(got, want) {
					t.Errorf("Ready says %q, want %q in it", got, want)
				}
			}
			if got := s.karpenter.ClaimsEver(s.ws.UID); got != test.bought {
				t.Errorf("%d machines bought, want %d", got, test.bought)
			}
			s.staysServed(t, before)
			lift()
			tries := 0
			eventually(t, "the pods replaced", func() (bool, string) {
				tries++
				if tries%20 == 1 { // the API server's copy of the policy lives on for a moment
					s.retried(t, strings.Repeat("x", tries/20+1))
				}
				return s.isRolled(t)
			})
			s.checkRolled(t, address)
			w.remove(t, s.ws)
		})
	}
}

// TestTakeoverWithinAQuota replaces KAITO's pod in a namespace with a quota of one pod. If the quota is too small for
// the new pod, the edit stops with a reason, and KAITO's pod stays.
func TestTakeoverWithinAQuota(t *testing.T) {
	w := enter(t)
	for _, test := range []struct {
		reason string
		gpus   string
		fits   bool
	}{
		{"one GPU, and the new pod needs one", "1", true},
		{"the GPUs of KAITO's pod alone are too few", "0", false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			s := w.kaitoServing(t, takeover.GPUProvisioner, 0)
			before, address := s.exact(t), s.address(t)
			quota := &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.ws.Namespace, Name: "exact"},
				Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
					"requests.nvidia.com/gpu": resource.MustParse(test.gpus), corev1.ResourcePods: resource.MustParse("1"),
					"count/statefulsets.apps": resource.MustParse("1"),
				}},
			}
			if err := w.client.Create(t.Context(), quota); err != nil {
				t.Fatal(err)
			}
			quota.Status.Hard = quota.Spec.Hard // there is no quota controller here
			quota.Status.Used = corev1.ResourceList{
				"requests.nvidia.com/gpu": resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("1"),
				"count/statefulsets.apps": resource.MustParse("1"),
			}
			if err := w.client.Status().Update(t.Context(), quota); err != nil {
				t.Fatal(err)
			}
			w.begin(t, faults.NewRecorder())
			w.berth(t, s.ws.Namespace, "adopt", s.ws.Name)
			s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
			s.edit(t)
			if !test.fits {
				s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonResourceQuotaExceeded)
				if got := condition(s.ws, v1beta1.ConditionReady).Message; !strings.Contains(got, "exact refuses the pods: its limit of requests.nvidia.com/gpu is 0") {
					t.Errorf("Ready says %q", got)
				}
				s.staysServed(t, before)
				s.releases(t)
				return
			}
			eventually(t, "KAITO's StatefulSet gone", func() (bool, string) {
				set := &appsv1.StatefulSet{}
				err := w.client.Get(t.Context(), client.ObjectKeyFromObject(s.ws), set)
				isGone := apierrors.IsNotFound(err) || set.Labels[v1beta1.LabelManagedBy] == v1beta1.ManagedBy || !set.DeletionTimestamp.IsZero()
				s.read(t, s.ws)
				return isGone, saying(s.ws)
			})
			if err := w.client.Delete(t.Context(), quota); err != nil { // no controller lowers the quota's count here
				t.Fatal(err)
			}
			eventually(t, "the pods replaced", func() (bool, string) { return s.isRolled(t) })
			s.checkRolled(t, address)
			w.remove(t, s.ws)
		})
	}
}

// TestMachinesOfKAITOsCount counts KAITO's machine of a frozen Workspace in the ceiling of its namespace, at the price of the
// type in its labels.
func TestMachinesOfKAITOsCount(t *testing.T) {
	w := enter(t)
	for _, mode := range []takeover.Mode{takeover.Karpenter, takeover.GPUProvisioner} {
		t.Run(string(mode), func(t *testing.T) {
			s := w.kaitoServing(t, mode, 0)
			for _, machine := range s.machines { // as its provisioner does at the launch
				if claim, isClaim := machine.(*karpv1.NodeClaim); isClaim {
					former := claim.DeepCopy()
					claim.Labels[corev1.LabelInstanceTypeStable] = dear
					if err := w.client.Patch(t.Context(), claim, client.MergeFrom(former)); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.spend(t, 4)
			w.berth(t, s.ws.Namespace, "adopt", s.ws.Name)
			s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
			second := named(s.ws.Namespace, "second", dear)
			w.create(t, second)
			w.untilCondition(t, second, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonSpendingCeiling)
			if got := condition(second, v1beta1.ConditionNodeClaimReady).Message; !strings.Contains(got, "chat ($3.67/h)") {
				t.Errorf("message %q, want KAITO's machine of chat in it", got)
			}
			w.remove(t, second)
			s.releases(t)
		})
	}
}
