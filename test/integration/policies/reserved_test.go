// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func setOf(name string, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	plain := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: plain},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: plain}, Spec: podOf("", nil).Spec},
		},
	}
	change(set)
	return set
}

// reservedMarks are on all written objects, each on its relevant kind.
func reservedMarks() map[string]client.Object {
	ofPod := func(key, value string) client.Object { return podOf("marked", map[string]string{key: value}) }
	annotated := podOf("marked", nil)
	annotated.Annotations = map[string]string{v1beta1.AnnotationMachine: `{"attempt":1,"instanceType":"a","hourlyPrice":1000000}`}
	return map[string]client.Object{
		"the label of a Workspace's pods": ofPod(v1beta1.LabelWorkspace, "chat"),
		"the UID of a Workspace":          ofPod(v1beta1.LabelWorkspaceUID, "uid-1"),
		"the mark of what is managed":     ofPod(v1beta1.LabelManagedBy, v1beta1.ManagedBy),
		"a role in a group":               ofPod(v1beta1.LabelGroupRole, "worker"),
		"what a pod asks for":             annotated,
		"a StatefulSet": setOf("marked", func(set *appsv1.StatefulSet) {
			set.Labels = map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
		}),
		"the pods of a StatefulSet": setOf("marked", func(set *appsv1.StatefulSet) {
			set.Spec.Template.Labels[v1beta1.LabelWorkspace] = "chat"
		}),
		"the price on the pods of a StatefulSet": setOf("marked", func(set *appsv1.StatefulSet) {
			set.Spec.Template.Annotations = map[string]string{v1beta1.AnnotationMachine: "{}"}
		}),
		"a plan": &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "marked", Labels: map[string]string{v1beta1.LabelRevisionOwner: "chat"}},
			Data:       runtime.RawExtension{Raw: []byte("{}")},
		},
		"the pods of a former StatefulSet": &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "marked"},
			Data:       runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"metadata":{"labels":{"kaito.sh/workspace":"chat"}}}}}`)},
		},
		"the nodes of a plan": &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "marked", Annotations: map[string]string{v1beta1.AnnotationNodes: "{}"}},
			Data:       runtime.RawExtension{Raw: []byte("{}")},
		},
	}
}

// TestForgedMarksAreRefused writes the controller's marks as other users, and as the controller.
func TestForgedMarksAreRefused(t *testing.T) {
	for reason, object := range reservedMarks() {
		t.Run(reason, func(t *testing.T) {
			for name, want := range map[string]bool{"stranger": false, controller: true, setController: true} {
				fresh, _ := object.DeepCopyObject().(client.Object)
				if name == controller { // which makes them for a Workspace
					fresh.SetOwnerReferences(ownedBy("kaito.sh/v1beta1", "Workspace"))
					labels := ours()
					maps.Copy(labels, fresh.GetLabels())
					fresh.SetLabels(labels)
				}
				err := user(t, name).Create(t.Context(), fresh, client.DryRunAll)
				if (err == nil) != want {
					t.Errorf("%s: %v, want it to pass: %v", name, err, want)
				}
				if err != nil && !strings.Contains(err.Error(), "only Modelberth may set or change its labels and annotations") {
					t.Errorf("%s: the message does not say why: %v", name, err)
				}
			}
		})
	}
}

// TestOnlyDaemonSetsMayTolerateTheTaintOfAWorkspace: pods of others do not come to its machines by naming its taint.
func TestOnlyDaemonSetsMayTolerateTheTaintOfAWorkspace(t *testing.T) {
	toleration := corev1.Toleration{Key: v1beta1.TaintKeyWorkspace, Operator: corev1.TolerationOpExists}
	pod, gpus := podOf("tolerant", nil), podOf("gpus", nil)
	pod.Spec.Tolerations = []corev1.Toleration{toleration}
	gpus.Spec.Tolerations = []corev1.Toleration{{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists}}
	set := setOf("tolerant", func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Tolerations = []corev1.Toleration{toleration} })
	const daemonSets = "system:serviceaccount:kube-system:daemon-set-controller"
	tests := []struct {
		reason, user string
		object       client.Object
		want         bool
	}{
		{"a stranger's pod", "stranger", pod, false},
		{"a stranger's StatefulSet", "stranger", set, false},
		{"a StatefulSet's former pods", "stranger", &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "tolerant"},
			Data:       runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"spec":{"tolerations":[{"key":"modelberth.dev/workspace-uid"}]}}}}`)},
		}, false},
		{"a Deployment's pod", "system:serviceaccount:kube-system:replicaset-controller", pod, false},
		{"a DaemonSet's pod", daemonSets, pod, true},
		{"a pod of ours", setController, pod, true},
		{"a pod for other GPU machines", "stranger", gpus, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			fresh, _ := test.object.DeepCopyObject().(client.Object)
			err := user(t, test.user).Create(t.Context(), fresh, client.DryRunAll)
			if (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), "remove the toleration") {
				t.Errorf("the message does not say what to do: %v", err)
			}
		})
	}
	t.Run("a pod of ours stays writable", func(t *testing.T) {
		ours := user(t, setController)
		if err := ours.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ours.Delete(context.WithoutCancel(t.Context()), pod) })
		body := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"team":"a"}}}`))
		if err := user(t, "stranger").Patch(t.Context(), pod, body); err != nil {
			t.Error(err)
		}
	})
}

// TestMarkedObjectsStayWritable: without a change of the marks, only RBAC limits a user.
func TestMarkedObjectsStayWritable(t *testing.T) {
	pod, set := podOf("kept", map[string]string{v1beta1.LabelWorkspace: "chat"}), setOf("kept", func(set *appsv1.StatefulSet) {
		set.Labels = map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
		set.Finalizers = []string{"example.dev/hold"}
	})
	ours := user(t, setController)
	for _, object := range []client.Object{pod, set} {
		if err := ours.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ours.Delete(context.WithoutCancel(t.Context()), object) })
	}
	stranger := user(t, "stranger")
	patch := func(object client.Object, body string) error {
		fresh, _ := object.DeepCopyObject().(client.Object)
		return stranger.Patch(t.Context(), fresh, client.RawPatch("application/merge-patch+json", []byte(body)))
	}
	tests := []struct {
		reason string
		object client.Object
		body   string
		want   bool
	}{
		{"a label of his own", pod, `{"metadata":{"labels":{"team":"a"}}}`, true},
		{"taking a mark away", pod, `{"metadata":{"labels":{"kaito.sh/workspace":null}}}`, false},
		{"changing a mark", pod, `{"metadata":{"labels":{"kaito.sh/workspace":"other"}}}`, false},
		{"adding a mark", pod, `{"metadata":{"annotations":{"modelberth.dev/machine":"{}"}}}`, false},
		{"a restart", set, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`, true},
		{"adding a mark to the pods", set, `{"spec":{"template":{"metadata":{"annotations":{"modelberth.dev/machine":"{}"}}}}}`, false},
		{"removing a finalizer", set, `{"metadata":{"finalizers":null}}`, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if err := patch(test.object, test.body); (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}

// TestStatusWritesChangeNoMarks: a write of a status may change labels and annotations, too.
func TestStatusWritesChangeNoMarks(t *testing.T) {
	ours := user(t, setController)
	pod := podOf("reporting", map[string]string{v1beta1.LabelWorkspace: "chat"})
	set := setOf("reporting", func(*appsv1.StatefulSet) {})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "reporting"}}
	for _, object := range []client.Object{pod, set, node} {
		if err := ours.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ours.Delete(context.WithoutCancel(t.Context()), object) })
	}
	const marked = `{"metadata":{"labels":{"kaito.sh/workspace":"other"}}}`
	tests := []struct {
		reason string
		who    []string
		object client.Object
		body   string
		want   bool
	}{
		{"a pod's status", []string{"stranger"}, pod, `{"status":{"message":"fine"}}`, true},
		{"a pod's mark", []string{"stranger"}, pod, marked, false},
		{"a pod's price", []string{"stranger"}, pod, `{"metadata":{"annotations":{"modelberth.dev/machine":"{}"}}}`, false},
		{"a label of another's", []string{"stranger"}, pod, `{"metadata":{"labels":{"team":"a"}}}`, true},
		{"the kubelet of a pod", []string{"system:node:a", "system:nodes"}, pod, `{"status":{"message":"fine"}}`, true},
		{"a StatefulSet's status", []string{"stranger"}, set, `{"status":{"replicas":1}}`, true},
		{"a StatefulSet's mark", []string{"stranger"}, set, marked, false},
		{"a node's status", []string{"stranger"}, node, `{"status":{"capacity":{"a.example/gpu":"1"}}}`, true},
		{"a node's Workspace", []string{"stranger"}, node, marked, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			fresh, _ := test.object.DeepCopyObject().(client.Object)
			patch := client.RawPatch("application/merge-patch+json", []byte(test.body))
			err := user(t, test.who[0], test.who[1:]...).Status().Patch(t.Context(), fresh, patch, client.DryRunAll)
			if (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}

// TestOnlyTheControllerWritesAttempts: it believes them after a restart.
func TestOnlyTheControllerWritesAttempts(t *testing.T) {
	ws := replicaOf(nil)
	ws.SetName("attempting")
	if err := api.Create(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.WithoutCancel(t.Context()), ws) })
	const attempts = `{"status":{"attempts":[{"number":1,"instanceType":"a","startTime":"2026-01-01T00:00:00Z"}]}}`
	for _, test := range []struct {
		reason, user, body string
		want               bool
	}{
		{"an attempt of a stranger's", "stranger", attempts, false},
		{"another field", "stranger", `{"status":{"observedGeneration":3}}`, true},
		{"the controller's", controller, attempts, true},
		{"one attempt less", "stranger", `{"status":{"attempts":null}}`, false},
		{"another field, with attempts", "stranger", `{"status":{"observedGeneration":4}}`, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			patch := client.RawPatch("application/merge-patch+json", []byte(test.body))
			if err := user(t, test.user).Status().Patch(t.Context(), ws.DeepCopy(), patch); (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}

// TestNamespaceOwnerCannotRaiseItsCeiling, not even with all rights in the namespace.
func TestNamespaceOwnerCannotRaiseItsCeiling(t *testing.T) {
	const ceiling = `{"metadata":{"annotations":{"modelberth.dev/spending-ceiling":"9999"}}}`
	for _, test := range []struct {
		reason, user, body string
		want               bool
	}{
		{"another annotation", "stranger", `{"metadata":{"annotations":{"team":"a"}}}`, true},
		{"a stranger's ceiling", "stranger", ceiling, false},
		{"the owner's ceiling", "owner", ceiling, false},
		{"the administrator's ceiling", "treasurer", ceiling, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			for _, write := range []func(client.Client, client.Object, client.Patch) error{
				func(c client.Client, o client.Object, p client.Patch) error {
					return c.Patch(t.Context(), o, p, client.DryRunAll)
				},
				func(c client.Client, o client.Object, _ client.Patch) error {
					whole := &corev1.Namespace{}
					if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), whole); err != nil {
						return err
					}
					if err := json.Unmarshal([]byte(test.body), whole); err != nil {
						return err
					}
					return c.SubResource("finalize").Update(t.Context(), whole, client.DryRunAll)
				},
				func(c client.Client, o client.Object, p client.Patch) error {
					return c.Status().Patch(t.Context(), o, p, client.DryRunAll)
				},
			} {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
				err := write(user(t, test.user), namespace, client.RawPatch("application/merge-patch+json", []byte(test.body)))
				if (err == nil) != test.want {
					t.Errorf("%v, want it to pass: %v", err, test.want)
				}
			}
		})
	}
}

// TestForgedNodeLabelsAreRefused: only kubelets and provisioners assign nodes.
func TestForgedNodeLabelsAreRefused(t *testing.T) {
	for _, test := range []struct {
		reason, key string
		who         []string
		want        bool
	}{
		{"the UID of a Workspace", v1beta1.LabelWorkspaceUID, []string{"stranger"}, false},
		{"the name of a Workspace", v1beta1.LabelMachineWorkspaceName, []string{"stranger"}, false},
		{"KAITO's label", v1beta1.LabelWorkspace, []string{"stranger"}, false},
		{"a label of his own", "team", []string{"stranger"}, true},
		{"Karpenter", v1beta1.LabelWorkspaceUID, []string{"karpenter"}, true},
		{"the kubelet", v1beta1.LabelMachineWorkspaceName, []string{"system:node:marked", "system:nodes"}, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "marked", Labels: map[string]string{test.key: "a"}}}
			err := user(t, test.who[0], test.who[1:]...).Create(t.Context(), node, client.DryRunAll)
			if (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}
