// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// tuning is a Workspace for fine-tuning, as KAITO's users write it.
func tuning(namespace, name string) *v1beta1.Workspace {
	ws := kaitoForm(namespace, name)
	ws.Inference = nil
	ws.Tuning = &v1beta1.TuningSpec{
		Preset: &v1beta1.PresetSpec{Name: "phi-4"}, Method: "qlora",
		Input:  &v1beta1.DataSource{URLs: []string{"https://data.example/set.parquet"}},
		Output: &v1beta1.DataDestination{Image: "registry.example/adapter:1", ImagePushSecret: "push"},
	}
	return ws
}

// TestNothingIsBought runs the stories of Workspaces that report a fault and buy nothing.
func TestNothingIsBought(t *testing.T) {
	tests := []struct {
		reason    string
		change    func(*v1beta1.Workspace)
		make      func(namespace, name string) *v1beta1.Workspace
		beside    []client.Object
		condition string
		want      string
		message   string
		planned   bool
	}{
		{
			reason: "an unknown preset", want: v1beta1.ReasonUnknownPreset, message: "tiny-chad",
			change: func(ws *v1beta1.Workspace) { ws.Inference.Preset.Name = "tiny-chad" },
		},
		{
			reason: "an unknown machine type", want: v1beta1.ReasonUnknownInstanceType, message: "Standard_NC24ads_A100_v5",
			change: func(ws *v1beta1.Workspace) { ws.Resource.InstanceType = "Standard_NC24ads_A100_v5" },
		},
		{
			reason: "a machine type that nothing can run on", want: v1beta1.ReasonInstanceTypeUnusable,
			message: "Standard_NV6ads_A10_v5",
			change:  func(ws *v1beta1.Workspace) { ws.Resource.InstanceType = "Standard_NV6ads_A10_v5" },
		},
		{
			reason: "a model that does not fit the machine that is asked for", want: v1beta1.ReasonDoesNotFit,
			message: "GiB",
			change: func(ws *v1beta1.Workspace) {
				ws.Resource.InstanceType = "Standard_NC4as_T4_v3"
				ws.Inference.Objectives = &v1beta1.ObjectivesSpec{MaxModelLen: ptr.To[int32](512), Concurrency: ptr.To[int32](1000000)}
			},
		},
		{
			reason: "a price limit of nothing", want: v1beta1.ReasonSpecInvalid, message: "resource.placement.maxHourlyPrice",
			change: func(ws *v1beta1.Workspace) {
				ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "0"}
			},
		},
		{
			reason: "a tuning Workspace", make: tuning, want: v1beta1.ReasonTuningNotAvailable,
			message: "this version does not support tuning",
		},
		{
			reason: "a bring-your-own manifest without a node", want: v1beta1.ReasonNoMachineAllowed, message: "nodeSource: Any",
			change: func(ws *v1beta1.Workspace) { ws.Resource.InstanceType = "" },
		},
		{
			reason: "a ConfigMap that does not exist", want: v1beta1.ReasonConfigNotFound, message: `ConfigMap "missing"`,
			change: func(ws *v1beta1.Workspace) { ws.Inference.Config = "missing" },
		},
		{
			reason: "a Secret that does not exist", want: v1beta1.ReasonSecretNotFound, message: `Secret "missing"`,
			change: func(ws *v1beta1.Workspace) { ws.Inference.Preset.PresetOptions.ModelAccessSecret = "missing" },
		},
		{
			reason: "no Secret for the endpoint's key", want: v1beta1.ReasonSecretNotFound,
			message: `Secret "missing", which does not exist in namespace`,
			change: func(ws *v1beta1.Workspace) {
				ws.Inference.Engine = &v1beta1.EngineSpec{APIKeySecret: "missing"}
			},
		},
		{
			reason: "a Secret without the endpoint's key", want: v1beta1.ReasonSecretNotFound, message: "but its key API_KEY is missing",
			beside: []client.Object{&corev1.Secret{Data: map[string][]byte{"key": []byte("k")}}},
			change: func(ws *v1beta1.Workspace) {
				ws.Inference.Engine = &v1beta1.EngineSpec{APIKeySecret: ws.Name}
			},
		},
		{
			reason: "a key that no client can send", want: v1beta1.ReasonSecretNotFound, message: "begins or ends with a space or a line break",
			beside: []client.Object{&corev1.Secret{Data: map[string][]byte{"API_KEY": []byte("k\n")}}},
			change: func(ws *v1beta1.Workspace) {
				ws.Inference.Engine = &v1beta1.EngineSpec{APIKeySecret: ws.Name}
			},
		},
		{
			reason: "a key in the arguments", want: v1beta1.ReasonSpecInvalid, message: "name the Secret in inference.engine.apiKeySecret",
			change: func(ws *v1beta1.Workspace) {
				ws.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"api-key": "k"}}
			},
		},
		{
			reason: "a Service of that name that belongs to somebody else", want: v1beta1.ReasonNameTaken, planned: true,
			message: "Service",
			beside:  []client.Object{&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}},
		},
		{
			reason: "a StatefulSet of that name that belongs to somebody else", want: v1beta1.ReasonNameTaken, planned: true,
			message: "StatefulSet",
			beside: []client.Object{&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Replicas: ptr.To[int32](0),
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				},
			}}},
		},
		{
			reason: "a suspended Workspace, which is planned all the same", want: v1beta1.ReasonSuspended, planned: true,
			condition: v1beta1.ConditionReady, message: "suspend",
			change: func(ws *v1beta1.Workspace) { ws.Suspend = true },
		},
	}
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			form := kaitoForm
			if test.make != nil {
				form = test.make
			}
			ws := form(w.namespace(t), "chat")
			if test.change != nil {
				test.change(ws)
			}
			for _, object := range test.beside {
				object.SetNamespace(ws.Namespace)
				object.SetName(ws.Name)
				if err := w.client.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			w.create(t, ws)
			kind, status := v1beta1.ConditionStalled, metav1.ConditionTrue
			if test.condition != "" {
				kind, status = test.condition, metav1.ConditionFalse
			}
			w.untilCondition(t, ws, kind, status, test.want)
			for _, condition := range ws.Status.Conditions {
				if condition.Type == kind && !strings.Contains(condition.Message, test.message) {
					t.Errorf("message %q does not say %q", condition.Message, test.message)
				}
				if condition.Type == v1beta1.ConditionPlanned && (condition.Status == metav1.ConditionTrue) != test.planned {
					t.Errorf("Planned is %s, want %v", condition.Status, test.planned)
				}
			}
			w.passes(t, life, ws, 2)
			w.checkNothingBought(t, ws)
			w.checkUntouched(t, test.beside)
			if err := w.client.Delete(t.Context(), ws); err != nil {
				t.Fatal(err)
			}
			w.untilGone(t, ws)
			w.checkNothingBought(t, ws)
		})
	}
}

func TestSuspendReleasesAndServesAgain(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	ws := kaitoForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.patch(t, ws, func() { ws.Suspend = true })
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonSuspended)
	w.untilReleased(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
	w.patch(t, ws, func() { ws.Suspend = false })
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	if got := w.karpenter.ClaimsEver(ws.UID); got != 2 {
		t.Errorf("NodeClaims ever made: %d, want 2", got)
	}
	w.remove(t, ws)
}

func TestTroubleOfMachinesIsVisible(t *testing.T) {
	tests := []struct {
		reason    string
		behaviour sim.Behaviour
		machine   string
		want      string
	}{
		{"a cloud that does not answer", sim.Hangs, "Standard_NC48ads_A100_v4", "LaunchFailed"},
		{"a node that never shows its GPUs", sim.NoGPUs, "Standard_NC96ads_A100_v4", "ResourceNotRegistered"},
	}
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			w.karpenter.Script(test.machine, test.behaviour)
			ws := kaitoForm(w.namespace(t), "chat")
			ws.Resource.InstanceType = test.machine
			w.create(t, ws)
			w.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, test.want)
			w.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, test.want)
			w.remove(t, ws)
		})
	}
}

func TestTroubleOfWeightsIsVisibleAndHeals(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	ws := kaitoForm(w.namespace(t), "chat")
	key := client.ObjectKeyFromObject(ws)
	w.workloads.Script(key, corev1.PodStatus{
		Phase: corev1.PodPending,
		InitContainerStatuses: []corev1.ContainerStatus{{
			Name:  "weights",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 1,
				Message:  `{"reason":"HubUnreachable","message":"cannot reach http://hub.example: connection refused"}`,
			}},
		}},
	})
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionInferenceReady, metav1.ConditionFalse, v1beta1.ReasonWeightsHubUnreachable)
	w.workloads.Heal(key)
	w.patch(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name}}, nil)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.remove(t, ws)
}

func TestTemplateWorkspace(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	ws := templateForm(w.namespace(t))
	ws.Resource.Count = new(2)
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	budget := &policyv1.PodDisruptionBudget{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), budget); err != nil || budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("PodDisruptionBudget of two pods that each serve: %+v, %v", budget.Spec, err)
	}
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); err != nil {
		t.Fatal(err)
	}
	if got := set.Spec.Template.Spec.Containers[0]; got.Image != "registry.example/server:1" || got.Command[0] != "serve" {
		t.Errorf("the user's container was changed: %+v", got)
	}
	w.remove(t, ws)
}

// checkNothingBought asks the API server for existing machines, and Karpenter's stand-in for past ones.
func (w *world) checkNothingBought(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if there, ever := len(w.claims(t, ws)), w.karpenter.ClaimsEver(ws.UID); there+ever > 0 {
		t.Errorf("NodeClaims: %d there, %d ever made; want none", there, ever)
	}
}

// checkUntouched looks for the controller's hand on objects of somebody else.
func (w *world) checkUntouched(t *testing.T, objects []client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		for _, entry := range object.GetManagedFields() {
			if entry.Manager == apply.FieldOwner {
				t.Errorf("the controller wrote to the foreign %T", object)
			}
		}
		if len(object.GetOwnerReferences()) > 0 {
			t.Errorf("the foreign %T was taken over", object)
		}
	}
}

// patch changes an object; without a change, it only touches the Workspace, to trigger a pass.
func (w *world) patch(t *testing.T, object client.Object, change func()) {
	t.Helper()
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		t.Fatalf("%T is no object", object)
	}
	if change == nil {
		change = func() {
			annotations := map[string]string{}
			maps.Copy(annotations, object.GetAnnotations())
			annotations["example.dev/touched"] = object.GetResourceVersion()
			object.SetAnnotations(annotations)
		}
	}
	change()
	if err := w.client.Patch(t.Context(), object, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// remove deletes a Workspace and checks that nothing is left.
func (w *world) remove(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if err := w.client.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	w.untilGone(t, ws)
	w.checkNothingLeft(t, ws)
}
