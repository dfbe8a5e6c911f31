// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// served is a Workspace with the objects of KAITO's controller.
type served struct {
	*world
	ws *v1beta1.Workspace
	// claim is the name of the NodeClaim in gpu-provisioner mode.
	claim string
	// machines are to go with the Workspace.
	machines []client.Object
}

// TestWorkspaceOfKAITOIsLeftAlone starts the controller in a cluster that KAITO's controller served: whatever its form,
// the controller neither writes to the serving objects nor buys machines, and a deletion releases KAITO's machines.
func TestWorkspaceOfKAITOIsLeftAlone(t *testing.T) {
	w := enter(t)
	for _, test := range []struct {
		reason string
		leave  func(*served, *testing.T)
		names  string
	}{
		{"karpenter mode", (*served).inKarpenterMode, "StatefulSet chat, NodePool NAMESPACE-chat"},
		{"gpu-provisioner mode", (*served).inAgentPoolMode, "StatefulSet chat, NodeClaim ws84c8c0d28"},
		{"a StatefulSet on nodes of the user's own, without a NodePool", (*served).withSet, "StatefulSet chat"},
		{"the Deployment of an early version", (*served).withDeployment, "Deployment chat"},
		{"a NodePool that nothing runs on yet", (*served).withPool, "NodePool NAMESPACE-chat"},
		{"an agent pool that nothing runs on yet", (*served).withAgentPool, "NodeClaim ws84c8c0d28"},
		{"a user suspends it", func(s *served, t *testing.T) { s.suspend(t); s.inKarpenterMode(t) }, "StatefulSet chat, NodePool NAMESPACE-chat"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			s := w.kaitoServes(t)
			test.leave(s, t)
			other := w.kaitoServes(t)
			other.inKarpenterMode(t)
			names := strings.ReplaceAll(test.names, "NAMESPACE", s.ws.Namespace)
			before := s.state(t)
			for range 2 { // a controller and its successor
				life := w.begin(t, faults.NewRecorder())
				s.staysAsItIs(t, life, names, before)
				life.end(t)
			}
			w.begin(t, faults.NewRecorder())
			beside := other.state(t)
			s.releases(t)
			if diff := cmp.Diff(beside, other.state(t)); diff != "" {
				t.Errorf("the deletion of %s/%s changed what another Workspace has (-before +after):\n%s", s.ws.Namespace, s.ws.Name, diff)
			}
		})
	}
}

// TestLeftoverOfKAITOIsReleased deletes a Workspace that this controller serves beside a NodePool of KAITO's.
func TestLeftoverOfKAITOIsReleased(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	s := &served{world: w, ws: kaitoForm(w.namespace(t), "chat")}
	w.create(t, s.ws)
	w.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	s.withPool(t)
	s.releases(t)
	w.checkNothingLeft(t, s.ws)
}

// TestWorkspaceOfKAITOIsServedAfterwards has the objects of KAITO's go: the Workspace is served from here on its own.
func TestWorkspaceOfKAITOIsServedAfterwards(t *testing.T) {
	w := enter(t)
	s := w.kaitoServes(t)
	s.withPool(t)
	w.begin(t, faults.NewRecorder())
	w.untilCondition(t, s.ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonServedByKAITO)
	for _, machine := range s.machines {
		if err := w.client.Delete(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	w.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
}

// kaitoServes makes a Workspace as KAITO's controller leaves it, with its words in the status.
func (w *world) kaitoServes(t *testing.T) *served {
	t.Helper()
	return w.leftByKAITO(t, kaitoForm(w.namespace(t), "chat"))
}

// leftByKAITO is kaitoServes for a given Workspace.
func (w *world) leftByKAITO(t *testing.T, ws *v1beta1.Workspace) *served {
	t.Helper()
	ws.Finalizers = []string{v1beta1.Finalizer}
	ws.Annotations = map[string]string{v1beta1.AnnotationHash: strings.Repeat("f6d7", 16), v1beta1.AnnotationRevision: "1"}
	w.create(t, ws)
	former := ws.DeepCopy()
	for _, kind := range []string{
		v1beta1.ConditionNodesReady, v1beta1.ConditionNodeClaimReady, v1beta1.ConditionResourceReady,
		v1beta1.ConditionInferenceReady, v1beta1.ConditionWorkspaceSucceeded,
	} {
		ws.Status.Conditions = append(ws.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Done", Message: "KAITO's words", LastTransitionTime: metav1.Now().Rfc3339Copy(),
		})
	}
	ws.Status.State, ws.Status.TargetNodeCount, ws.Status.WorkerNodes = v1beta1.StateReady, 1, []string{"gone"}
	if err := w.client.Status().Patch(t.Context(), ws, client.MergeFrom(former)); err != nil {
		t.Fatal(err)
	}
	return &served{world: w, ws: ws, claim: "ws84c8c0d28"}
}

func (s *served) suspend(t *testing.T) {
	t.Helper()
	former := s.ws.DeepCopy()
	s.ws.Suspend = true
	if err := s.client.Patch(t.Context(), s.ws, client.MergeFrom(former)); err != nil {
		t.Fatal(err)
	}
}

func (s *served) inKarpenterMode(t *testing.T) {
	t.Helper()
	s.withPool(t)
	s.withSet(t)
}

func (s *served) inAgentPoolMode(t *testing.T) {
	t.Helper()
	s.withAgentPool(t)
	s.withSet(t)
}

// leave creates objects of KAITO's.
func (s *served) leave(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := s.client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating KAITO's %T %s: %v", object, object.GetName(), err)
		}
		t.Cleanup(func() { _ = s.client.Delete(context.Background(), object) })
	}
}

func (s *served) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.ws.Namespace, Name: name, Annotations: map[string]string{v1beta1.AnnotationRevision: "1"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.ws, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
	}
}

// withSet makes the StatefulSet, its Services and its revision.
func (s *served) withSet(t *testing.T) {
	t.Helper()
	labels := map[string]string{v1beta1.LabelWorkspace: s.ws.Name}
	service := &corev1.Service{ObjectMeta: s.meta(s.ws.Name), Spec: corev1.ServiceSpec{
		Selector:                 map[string]string{v1beta1.LabelWorkspace: s.ws.Name, appsv1.StatefulSetPodNameLabel: s.ws.Name + "-0"},
		PublishNotReadyAddresses: true, Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, TargetPort: intstr.FromInt32(5000)},
			{Name: "ray", Port: 6379},
			{Name: "dashboard", Port: 8265},
			{Name: "kv-events", Port: 5557},
		},
	}}
	headless := &corev1.Service{ObjectMeta: s.meta(s.ws.Name + "-headless"), Spec: corev1.ServiceSpec{
		Selector: labels, PublishNotReadyAddresses: true, ClusterIP: corev1.ClusterIPNone,
	}}
	revision := &appsv1.ControllerRevision{ObjectMeta: s.meta(s.ws.Name + "-f6d75"), Data: runtime.RawExtension{Raw: []byte(`{"kaito":true}`)}, Revision: 1}
	revision.Labels = map[string]string{v1beta1.LabelRevisionOwner: s.ws.Name}
	set := &appsv1.StatefulSet{ObjectMeta: s.meta(s.ws.Name), Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: s.ws.Name + "-headless",
		PodManagementPolicy: appsv1.ParallelPodManagement, Template: s.template(labels),
	}}
	s.leave(t, service, headless, revision, set)
}

func (s *served) withDeployment(t *testing.T) {
	t.Helper()
	labels := map[string]string{v1beta1.LabelWorkspace: s.ws.Name}
	deployment := &appsv1.Deployment{ObjectMeta: s.meta(s.ws.Name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: s.template(labels),
	}}
	s.leave(t, deployment)
}

func (s *served) template(labels map[string]string) corev1.PodTemplateSpec {
	gpu := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: s.ws.Name, Image: "mcr.example/kaito-base:0.5.0", Resources: corev1.ResourceRequirements{Limits: gpu, Requests: gpu},
		}}, Tolerations: []corev1.Toleration{{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}},
	}
}

// withPool makes the static NodePool of karpenter mode, and waits for its NodeClaim.
func (s *served) withPool(t *testing.T) {
	t.Helper()
	owner := map[string]string{
		v1beta1.LabelMachineWorkspaceName: s.ws.Name, v1beta1.LabelMachineWorkspaceNamespace: s.ws.Namespace,
	}
	pool := &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: s.ws.Namespace + "-" + s.ws.Name, Labels: map[string]string{
			"karpenter.kaito.sh/managed-by":   "kaito",
			v1beta1.LabelMachineWorkspaceName: s.ws.Name, v1beta1.LabelMachineWorkspaceNamespace: s.ws.Namespace,
		}},
		Spec: karpv1.NodePoolSpec{
			Replicas:   new(int64(1)),
			Disruption: karpv1.Disruption{ConsolidateAfter: karpv1.MustParseNillableDuration("0s")},
			Template: karpv1.NodeClaimTemplate{
				ObjectMeta: karpv1.ObjectMeta{Labels: s.selected(owner)},
				Spec: karpv1.NodeClaimTemplateSpec{
					NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "default"},
					Requirements: []karpv1.NodeSelectorRequirementWithMinValues{instanceTypeIs(s.ws.Resource.InstanceType)},
					Taints:       []corev1.Taint{{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
					ExpireAfter:  karpv1.MustParseNillableDuration("Never"),
				},
			},
		},
	}
	s.leave(t, pool)
	claims := &karpv1.NodeClaimList{}
	eventually(t, "the NodeClaim of KAITO's NodePool", func() (bool, string) {
		err := s.client.List(t.Context(), claims, client.MatchingLabels(owner), client.MatchingLabels{karpv1.NodePoolLabelKey: pool.Name})
		return err == nil && len(claims.Items) == 1 && claims.Items[0].Status.NodeName != "", fmt.Sprint(err)
	})
	s.machines = append(s.machines, pool, &claims.Items[0])
}

// withAgentPool makes a NodeClaim for an agent pool of gpu-provisioner.
func (s *served) withAgentPool(t *testing.T) {
	t.Helper()
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.claim, Annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true"},
			Labels: s.selected(map[string]string{
				v1beta1.LabelWorkspace: s.ws.Name, v1beta1.LabelWorkspaceNamespace: s.ws.Namespace, karpv1.NodePoolLabelKey: "kaito",
			}),
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "default"},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{instanceTypeIs(s.ws.Resource.InstanceType)},
			Resources:    karpv1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("87Gi")}},
			Taints:       []corev1.Taint{{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
			ExpireAfter:  karpv1.MustParseNillableDuration("Never"),
		},
	}
	s.leave(t, claim)
	eventually(t, "the machine of KAITO's NodeClaim", func() (bool, string) {
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		return err == nil && claim.Status.NodeName != "", fmt.Sprint(err)
	})
	s.machines = append(s.machines, claim)
}

// selected adds the labels of the Workspace's selector, as KAITO's controller does for machines and thereby nodes.
func (s *served) selected(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	maps.Copy(out, s.ws.Resource.LabelSelector.MatchLabels)
	return out
}

func instanceTypeIs(name string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{
		Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
	}
}

// state is the content of the namespace, without the Workspace, and of KAITO's machines: a version of each object.
func (s *served) state(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &appsv1.ControllerRevisionList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{},
	} {
		if err := s.client.List(t.Context(), list, client.InNamespace(s.ws.Namespace)); err != nil {
			t.Fatal(err)
		}
		s.note(t, out, list)
	}
	for _, list := range []client.ObjectList{&karpv1.NodePoolList{}, &karpv1.NodeClaimList{}} {
		if err := s.client.List(t.Context(), list, client.MatchingLabels{v1beta1.LabelMachineWorkspaceNamespace: s.ws.Namespace}); err != nil {
			t.Fatal(err)
		}
		s.note(t, out, list)
	}
	claims := &karpv1.NodeClaimList{}
	if err := s.client.List(t.Context(), claims, client.MatchingLabels{v1beta1.LabelWorkspaceNamespace: s.ws.Namespace}); err != nil {
		t.Fatal(err)
	}
	s.note(t, out, claims)
	return out
}

// note records the intended state of an object: its status is the cluster's to write.
func (s *served) note(t *testing.T, out map[string]string, list client.ObjectList) {
	t.Helper()
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err != nil {
			return fmt.Errorf("reading %T: %w", item, err)
		}
		out[fmt.Sprintf("%T %s", item, object.GetName())] = fmt.Sprint(object.GetUID(), " ", object.GetGeneration(), " ",
			object.GetLabels(), " ", object.GetAnnotations(), " ", object.GetDeletionTimestamp())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// staysAsItIs has the controller pass over the Workspace several times.
func (s *served) staysAsItIs(t *testing.T, life *life, names string, before map[string]string) {
	t.Helper()
	s.untilCondition(t, s.ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonServedByKAITO)
	planned, ready := condition(s.ws, v1beta1.ConditionPlanned), condition(s.ws, v1beta1.ConditionReady)
	if planned.Status != metav1.ConditionFalse || !strings.Contains(planned.Message, "made "+names+" for") || ready.Status != metav1.ConditionUnknown {
		t.Errorf("Planned=%s %q, Ready=%s; want False with %q, Unknown", planned.Status, planned.Message, ready.Status, names)
	}
	s.passes(t, life, s.ws, 2)
	requests := life.requests.Load()
	s.passes(t, life, s.ws, 3)
	if more := slices.DeleteFunc(life.requests.about("")[requests:], isLook); len(more) > 0 {
		t.Errorf("further passes asked for %v", more)
	}
	for _, write := range life.recorder.Writes() {
		if !strings.HasPrefix(write, "patch status of ") {
			t.Errorf("the controller wrote: %s", write)
		}
	}
	if diff := cmp.Diff(before, s.state(t)); diff != "" {
		t.Errorf("KAITO's objects changed (-before +after):\n%s", diff)
	}
	s.read(t, s.ws)
	status := s.ws.Status
	if status.State != v1beta1.StateReady || status.TargetNodeCount != 1 || len(status.WorkerNodes) != 1 || status.Plan != nil ||
		condition(s.ws, v1beta1.ConditionInferenceReady).Message != "KAITO's words" {
		t.Errorf("KAITO's status was overwritten: %s", saying(s.ws))
	}
	if got := s.karpenter.ClaimsEver(s.ws.UID); got != 0 {
		t.Errorf("NodeClaims bought: %d, want none", got)
	}
}

// isLook reports whether a request is about a Deployment, which the controller does not cache, or a Lease.
func isLook(request string) bool {
	return strings.Contains(request, "/deployments/") || strings.Contains(request, "/leases/")
}

// releases deletes the Workspace and waits until KAITO's machines are gone with it, and the Workspace not before them.
func (s *served) releases(t *testing.T) {
	t.Helper()
	if err := s.client.Delete(t.Context(), s.ws); err != nil {
		t.Fatal(err)
	}
	s.untilGone(t, s.ws)
	for _, machine := range s.machines {
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); !apierrors.IsNotFound(err) {
			t.Errorf("left behind: %T %s (error %v)", machine, machine.GetName(), err)
		}
	}
}
