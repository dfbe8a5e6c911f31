// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/takeover"
	"github.com/modelberth/modelberth/presets"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// berth runs kubectl berth against the API server, and returns its output.
func (w *world) berth(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), args, cli.World{
		In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Presets: presets.FS(),
		Clock: clock.RealClock{},
		Cluster: func(*genericclioptions.ConfigFlags, io.Writer) (*cli.Cluster, error) {
			return &cli.Cluster{Namespace: namespace, Objects: w.client}, nil
		},
	})
	if code != 0 {
		t.Fatalf("kubectl berth %v: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

// kaitoServing makes a Workspace of KAITO's in one of the modes, and waits until its pod is ready.
func (w *world) kaitoServing(t *testing.T, mode takeover.Mode, number int) *served {
	t.Helper()
	s := w.kaitoServes(t)
	s.claim = fmt.Sprintf("ws%09x", number+1)
	if mode == takeover.Karpenter {
		s.inKarpenterMode(t)
	} else {
		s.inAgentPoolMode(t)
	}
	eventually(t, "KAITO's pod ready", func() (bool, string) {
		set := &appsv1.StatefulSet{}
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(s.ws), set)
		return err == nil && set.Status.ReadyReplicas == 1, fmt.Sprint(err)
	})
	return s
}

// exact is the content of KAITO's objects of a Workspace and of their pods, byte for byte, without statuses.
func (s *served) exact(t *testing.T) map[string]string {
	t.Helper()
	out := s.state(t)
	pods := &corev1.PodList{}
	if err := s.client.List(t.Context(), pods, client.InNamespace(s.ws.Namespace)); err != nil {
		t.Fatal(err)
	}
	s.note(t, out, pods)
	sets, services := &appsv1.StatefulSetList{}, &corev1.ServiceList{}
	for _, list := range []client.ObjectList{sets, services} {
		if err := s.client.List(t.Context(), list, client.InNamespace(s.ws.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sets.Items {
		out["spec of StatefulSet "+sets.Items[i].Name] = bytesOf(t, sets.Items[i].Spec)
	}
	for i := range services.Items {
		out["all of Service "+services.Items[i].Name] = services.Items[i].ResourceVersion + bytesOf(t, services.Items[i].Spec)
	}
	for i := range pods.Items {
		out["spec of Pod "+pods.Items[i].Name] = string(pods.Items[i].UID) + bytesOf(t, pods.Items[i].Spec)
	}
	pools, claims := &karpv1.NodePoolList{}, &karpv1.NodeClaimList{}
	for _, list := range []client.ObjectList{pools, claims} {
		if err := s.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range pools.Items {
		if strings.HasPrefix(pools.Items[i].Name, s.ws.Namespace+"-") {
			out["spec of NodePool "+pools.Items[i].Name] = bytesOf(t, pools.Items[i].Spec)
		}
	}
	for i := range claims.Items {
		if claims.Items[i].Labels[v1beta1.LabelWorkspaceNamespace] == s.ws.Namespace {
			out["spec of NodeClaim "+claims.Items[i].Name] = bytesOf(t, claims.Items[i].Spec)
		}
	}
	return out
}

func bytesOf(t *testing.T, spec any) string {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// staysFrozen checks that nothing changed and nothing was bought.
func (s *served) staysFrozen(t *testing.T, before map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, s.exact(t)); diff != "" {
		t.Errorf("KAITO's objects of %s changed (-before +after):\n%s", s.ws.Namespace, diff)
	}
	if got := s.karpenter.ClaimsEver(s.ws.UID); got != 0 {
		t.Errorf("NodeClaims bought for %s: %d, want none", s.ws.Namespace, got)
	}
}

// TestTakeover takes 20 Workspaces of both modes over, gives half of them back and takes them again, and deletes all.
func TestTakeover(t *testing.T) {
	const number = 20
	w := enter(t)
	var all []*served
	before := map[string]map[string]string{}
	for i := range number {
		mode := takeover.Karpenter
		if i%2 == 1 {
			mode = takeover.GPUProvisioner
		}
		s := w.kaitoServing(t, mode, i)
		all, before[s.ws.Namespace] = append(all, s), s.exact(t)
	}
	life := w.begin(t, faults.NewRecorder())
	for _, s := range all {
		s.untilCondition(t, s.ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonServedByKAITO)
	}
	w.berth(t, "", "adopt", "--all", "-A")
	for _, s := range all {
		s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
		s.staysFrozen(t, before[s.ws.Namespace])
		if condition(s.ws, v1beta1.ConditionStalled).Status == metav1.ConditionTrue || s.ws.Status.State != v1beta1.StateReady {
			t.Errorf("state %q: %s; want Ready and not Stalled", s.ws.Status.State, saying(s.ws))
		}
	}
	w.passes(t, life, all[0].ws, 2)
	writes := len(life.recorder.Writes())
	w.passes(t, life, all[0].ws, 3)
	if more := life.recorder.Writes()[writes:]; len(more) > 0 {
		t.Errorf("further passes over a frozen Workspace wrote %v", more)
	}
	for _, s := range all[:number/2] {
		w.berth(t, s.ws.Namespace, "adopt", s.ws.Name, "--undo")
		s.untilCondition(t, s.ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonServedByKAITO)
		s.staysFrozen(t, before[s.ws.Namespace])
		if _, isLeft := s.ws.Annotations[v1beta1.AnnotationAdopted]; isLeft || condition(s.ws, v1beta1.ConditionInferenceReady).Message != "KAITO's words" {
			t.Errorf("after undo: annotations %v, %s", s.ws.Annotations, saying(s.ws))
		}
		w.berth(t, s.ws.Namespace, "adopt", s.ws.Name)
	}
	for _, s := range all {
		s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
	}
	for _, write := range life.recorder.Writes() {
		if !strings.HasPrefix(write, "patch status of ") {
			t.Errorf("the controller wrote: %s", write)
		}
	}
	for _, s := range all {
		s.releases(t)
	}
}

// TestFrozenPodsFail reports what happens to the pods of a frozen Workspace, and leaves it to their StatefulSet.
func TestFrozenPodsFail(t *testing.T) {
	w := enter(t)
	s := w.kaitoServing(t, takeover.Karpenter, 0)
	w.begin(t, faults.NewRecorder())
	w.berth(t, s.ws.Namespace, "adopt", s.ws.Name)
	s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
	pod := &corev1.Pod{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: s.ws.Namespace, Name: s.ws.Name + "-0"}, pod); err != nil {
		t.Fatal(err)
	}
	w.workloads.Script(client.ObjectKeyFromObject(s.ws), corev1.PodStatus{Phase: corev1.PodPending})
	t.Cleanup(func() { w.workloads.Heal(client.ObjectKeyFromObject(s.ws)) })
	if err := w.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInferencePending)
	if s.ws.Status.State != v1beta1.StateNotReady || condition(s.ws, v1beta1.ConditionInferenceReady).Status != metav1.ConditionFalse {
		t.Errorf("state %q: %s", s.ws.Status.State, saying(s.ws))
	}
	w.workloads.Heal(client.ObjectKeyFromObject(s.ws))
	// Otherwise the StatefulSet's stand-in does not reconcile a pod that is Pending already.
	if err := client.IgnoreNotFound(w.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0))); err != nil {
		t.Fatal(err)
	}
	s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
	s.releases(t)
}

// edit changes the spec of a Workspace, so that it is planned.
func (s *served) edit(t *testing.T) {
	t.Helper()
	s.patch(t, s.ws, func() { s.ws.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"seed": "3"}} })
}

// isRolled reports whether the Workspace has pods of this controller, and nothing of KAITO's is left.
func (s *served) isRolled(t *testing.T) (bool, string) {
	t.Helper()
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(s.ws), s.ws); err != nil {
		return false, err.Error()
	}
	if ready := condition(s.ws, v1beta1.ConditionReady); ready.Reason != v1beta1.ReasonServing {
		return false, saying(s.ws)
	}
	if _, isLeft := s.ws.Annotations[v1beta1.AnnotationAdopted]; isLeft {
		return false, "the takeover has not ended: " + saying(s.ws)
	}
	for _, machine := range s.machines {
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); !apierrors.IsNotFound(err) {
			return false, fmt.Sprintf("%T %s is left (error %v)", machine, machine.GetName(), err)
		}
	}
	return true, ""
}

// checkRolled looks at the objects after the first edit.
func (s *served) checkRolled(t *testing.T, address string) {
	t.Helper()
	if got := s.karpenter.ClaimsEver(s.ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	set, service := &appsv1.StatefulSet{}, &corev1.Service{}
	for _, object := range []client.Object{set, service} {
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(s.ws), object); err != nil {
			t.Fatal(err)
		}
		if object.GetLabels()[v1beta1.LabelManagedBy] != v1beta1.ManagedBy {
			t.Errorf("%T has labels %v", object, object.GetLabels())
		}
	}
	if image := set.Spec.Template.Spec.Containers[0].Image; strings.Contains(image, "kaito-base") || len(set.Spec.Template.Spec.Containers) != 1 {
		t.Errorf("containers %v: fields of KAITO's are left", set.Spec.Template.Spec.Containers)
	}
	ports := service.Spec.Ports
	if service.Spec.ClusterIP != address || len(ports) != 1 || ports[0].Port != 80 || service.Spec.PublishNotReadyAddresses {
		t.Errorf("Service at %s, ports %v, publishes pods that are not ready: %v; want %s, port 80 alone, false",
			service.Spec.ClusterIP, ports, service.Spec.PublishNotReadyAddresses, address)
	}
}

// address is the one of the Workspace's Service.
func (s *served) address(t *testing.T) string {
	t.Helper()
	service := &corev1.Service{}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(s.ws), service); err != nil {
		t.Fatal(err)
	}
	return service.Spec.ClusterIP
}

// TestFirstEditReplacesKAITOsPods has KAITO's pods serve until the machines of the new plan are usable, and KAITO's
// machines go once the new pods answer.
func TestFirstEditReplacesKAITOsPods(t *testing.T) {
	w := enter(t)
	for _, mode := range []takeover.Mode{takeover.Karpenter, takeover.GPUProvisioner} {
		t.Run(string(mode), func(t *testing.T) {
			s := w.kaitoServing(t, mode, 0)
			life := w.begin(t, faults.NewRecorder())
			w.berth(t, s.ws.Namespace, "adopt", s.ws.Name)
			s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
			address := s.address(t)
			s.edit(t)
			eventually(t, "the pods replaced", func() (bool, string) { return s.isRolled(t) })
			s.checkRolled(t, address)
			checkTakeoverOrder(t, life.recorder.Writes())
			w.passes(t, life, s.ws, 2)
			writes := len(life.recorder.Writes())
			w.passes(t, life, s.ws, 2)
			if more := life.recorder.Writes()[writes:]; len(more) > 0 {
				t.Errorf("further passes wrote %v", more)
			}
			w.remove(t, s.ws)
			life.end(t)
		})
	}
}

// checkTakeoverOrder checks the order: the new machines are bought, KAITO's StatefulSet is deleted, then KAITO's
// machines.
func checkTakeoverOrder(t *testing.T, writes []string) {
	t.Helper()
	at := func(prefix string) int {
		return slices.IndexFunc(writes, func(write string) bool { return strings.HasPrefix(write, prefix) })
	}
	bought, replaced := at("create *v1.NodeClaim"), at("delete *v1.StatefulSet")
	released := slices.IndexFunc(writes, func(write string) bool { return strings.HasPrefix(write, "delete *v1.PartialObjectMetadata") })
	if bought < 0 || replaced < bought || released < replaced {
		t.Errorf("bought at %d, replaced at %d, released at %d of %q", bought, replaced, released, writes)
	}
}

// TestRevertedEditFreezesAgain reverts an edit while its machines launch: they are released, and nothing of KAITO's
// has changed.
func TestRevertedEditFreezesAgain(t *testing.T) {
	w := enter(t)
	s := w.kaitoServing(t, takeover.Karpenter, 0)
	before := s.exact(t)
	w.begin(t, faults.NewRecorder())
	w.berth(t, s.ws.Namespace, "adopt", s.ws.Name)
	s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
	w.karpenter.Script(s.ws.Resource.InstanceType, sim.Hangs)
	t.Cleanup(func() { w.karpenter.Script(s.ws.Resource.InstanceType, sim.Works) })
	s.edit(t)
	eventually(t, "a machine requested", func() (bool, string) {
		return w.karpenter.ClaimsEver(s.ws.UID) == 1, saying(s.ws)
	})
	s.patch(t, s.ws, func() { s.ws.Inference.Engine = nil })
	s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
	eventually(t, "the machine released", func() (bool, string) {
		claims := w.claims(t, s.ws)
		return len(claims) == 0, fmt.Sprint(len(claims))
	})
	after := s.exact(t)
	for name := range after {
		if _, wasThere := before[name]; !wasThere && strings.Contains(name, "ControllerRevision") {
			delete(after, name) // the plan's
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("KAITO's objects changed (-before +after):\n%s", diff)
	}
	w.berth(t, s.ws.Namespace, "adopt", s.ws.Name, "--undo")
	s.untilCondition(t, s.ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonServedByKAITO)
	s.releases(t)
}

// TestCrashAtEveryWriteOfATakeover kills the controller at every write from the takeover over the first edit to the
// deletion, before and after the write is done.
func TestCrashAtEveryWriteOfATakeover(t *testing.T) {
	w := enter(t)
	for _, moment := range []faults.Moment{faults.Before, faults.After} {
		for number := 1; !t.Failed(); number++ {
			if !w.crashTakeover(t, number, moment) {
				t.Logf("crashed %s each of %d writes", moment, number-1)
				if number < 12 {
					t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
				}
				break
			}
		}
	}
}

func (w *world) crashTakeover(t *testing.T, number int, moment faults.Moment) (crashed bool) {
	t.Helper()
	var c *crash
	t.Run(fmt.Sprintf("%s write %d", moment, number), func(t *testing.T) {
		mode := takeover.Karpenter
		if number%2 == 0 {
			mode = takeover.GPUProvisioner
		}
		s := w.kaitoServing(t, mode, 100+number)
		before, address := s.exact(t), s.address(t)
		c = w.crashAt(t, number, moment, w.begin)
		w.berth(t, s.ws.Namespace, "adopt", s.ws.Name)
		eventually(t, "frozen", func() (bool, string) {
			c.takeOver(t)
			s.read(t, s.ws)
			return condition(s.ws, v1beta1.ConditionReady).Reason == v1beta1.ReasonFrozen, saying(s.ws)
		})
		s.staysFrozen(t, before)
		s.edit(t)
		eventually(t, "the pods replaced", func() (bool, string) {
			c.takeOver(t)
			return s.isRolled(t)
		})
		s.checkRolled(t, address)
		c.untilDeleted(t, s.ws)
		w.checkNothingLeft(t, s.ws)
	})
	return c.came
}
