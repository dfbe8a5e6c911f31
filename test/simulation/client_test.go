// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
)

// reader reads objects as somebody sees them.
type reader struct {
	see     func(kind) map[types.NamespacedName]client.Object
	indexes map[string]client.IndexerFunc
	// fail returns the error of an absent server.
	fail func() error
}

// Get copies an object.
func (r *reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if err := r.fail(); err != nil {
		return err
	}
	known := r.see(kindOf(into))[key]
	if known == nil || reflect.TypeOf(known) != reflect.TypeOf(into) {
		return apierrors.NewNotFound(resourceOf(into), key.Name)
	}
	copyInto(known, into)
	return nil
}

// copyInto overwrites an object with another of its type.
func copyInto(from, into client.Object) {
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

// List copies the selected objects, by name.
func (r *reader) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := r.fail(); err != nil {
		return err
	}
	asked := client.ListOptions{}
	for _, option := range options {
		option.ApplyToList(&asked)
	}
	found := r.selected(kindOf(into), &asked)
	isShared := asked.UnsafeDisableDeepCopy != nil && *asked.UnsafeDisableDeepCopy
	switch into := into.(type) {
	case *v1beta1.WorkspaceList:
		into.Items = items[v1beta1.Workspace](found, isShared)
	case *karpv1.NodeClaimList:
		into.Items = items[karpv1.NodeClaim](found, isShared)
	case *corev1.NodeList:
		into.Items = items[corev1.Node](found, isShared)
	case *corev1.PodList:
		into.Items = items[corev1.Pod](found, isShared)
	case *appsv1.ControllerRevisionList:
		into.Items = items[appsv1.ControllerRevision](found, isShared)
	case *corev1.EventList:
		into.Items = items[corev1.Event](found, isShared)
	case *discoveryv1.EndpointSliceList:
		into.Items = items[discoveryv1.EndpointSlice](found, isShared)
	case *appsv1.DaemonSetList: // there are none
	default:
		return fmt.Errorf("nobody simulates lists of %T", into)
	}
	return nil
}

func items[T any, P object[T]](found []client.Object, isShared bool) []T {
	out := make([]T, len(found))
	for i := range found {
		typed, ok := found[i].(P)
		switch {
		case !ok:
		case isShared:
			out[i] = *typed
		default:
			typed.DeepCopyInto(&out[i])
		}
	}
	return out
}

func (r *reader) selected(k kind, asked *client.ListOptions) []client.Object {
	var out []client.Object
	for _, known := range sorted(r.see(k)) {
		isMeant := (asked.Namespace == "" || asked.Namespace == known.GetNamespace()) &&
			(asked.LabelSelector == nil || asked.LabelSelector.Matches(labelsOf(known)))
		if isMeant && asked.FieldSelector != nil {
			for _, want := range asked.FieldSelector.Requirements() {
				isMeant = isMeant && r.isIndexed(known, want.Field, want.Value)
			}
		}
		if isMeant {
			out = append(out, known)
		}
	}
	return out
}

// uses reads the requests of pods on nodes from the server: their watch has tests of its own.
type uses struct{ live *reader }

// Of implements planning.Uses.
func (u uses) Of(nodes []string) ([]existing.Use, bool) {
	var out []existing.Use
	for _, object := range sorted(u.live.see(kindOf(&corev1.Pod{}))) {
		pod, isPod := object.(*corev1.Pod)
		if !isPod || !slices.Contains(nodes, pod.Spec.NodeName) {
			continue
		}
		if use, holds := existing.UseOf(pod); holds {
			out = append(out, use)
		}
	}
	return out, true
}

// isIndexed reports whether an index, or the server's own knowledge of a field, finds an object by a value.
func (r *reader) isIndexed(known client.Object, field, value string) bool {
	if index := r.indexes[field]; index != nil {
		return slices.Contains(index(known), value)
	}
	switch typed := known.(type) {
	case *corev1.Event:
		return field == "involvedObject.uid" && string(typed.InvolvedObject.UID) == value
	case *corev1.Pod:
		return field == "spec.nodeName" && typed.Spec.NodeName == value
	default:
		return field == metav1.ObjectNameField && known.GetName() == value
	}
}

// labelsOf saves the copy of labels.Set.
type labelled struct{ of map[string]string }

func labelsOf(known client.Object) labelled         { return labelled{known.GetLabels()} }
func (l labelled) Has(key string) bool              { _, ok := l.of[key]; return ok }
func (l labelled) Get(key string) string            { return l.of[key] }
func (l labelled) Lookup(key string) (string, bool) { value, ok := l.of[key]; return value, ok }

// writer is the client of one process: it reads the objects seen by the process's watches, and every write may be its
// last.
type writer struct {
	client.Client // what is not simulated
	*reader

	process *process
	server  *server
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
}

// Get implements client.Client.
func (w *writer) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return w.reader.Get(ctx, key, into, options...)
}

// List implements client.Client.
func (w *writer) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return w.reader.List(ctx, into, options...)
}

// Scheme implements client.Client.
func (w *writer) Scheme() *runtime.Scheme { return w.scheme }

// RESTMapper implements client.Client.
func (w *writer) RESTMapper() meta.RESTMapper { return w.mapper }

// Create implements client.Client.
func (w *writer) Create(_ context.Context, object client.Object, options ...client.CreateOption) error {
	asked := client.CreateOptions{}
	for _, option := range options {
		option.ApplyToCreate(&asked)
	}
	if len(asked.DryRun) > 0 {
		return w.try(object)
	}
	return w.process.write("create", object, func() error { return w.server.create(object) })
}

// try reports whether an object known only by its intent could be made.
func (w *writer) try(object client.Object) error {
	content, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("nobody simulates a dry run of %T", object)
	}
	intent, err := w.intent(client.ApplyConfigurationFromUnstructured(content))
	if err != nil {
		return err
	}
	if key := client.ObjectKeyFromObject(intent); w.server.objects[kindOf(intent)][key] != nil {
		return apierrors.NewAlreadyExists(resourceOf(intent), key.Name)
	}
	return w.process.answer()
}

// Delete implements client.Client.
func (w *writer) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	asked := client.DeleteOptions{}
	for _, option := range options {
		option.ApplyToDelete(&asked)
	}
	var uid *types.UID
	if asked.Preconditions != nil {
		uid = asked.Preconditions.UID
	}
	return w.process.write("delete", object, func() error { return w.server.delete(object, uid) })
}

// Patch implements client.Client: beside the status, only the finalizers of a Workspace are patched.
func (w *writer) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return w.process.write("patch", object, func() error {
		return w.patch(object, patch, func(next *v1beta1.Workspace, ours *v1beta1.Workspace) { next.Finalizers = ours.Finalizers })
	})
}

// Status implements client.Client.
func (w *writer) Status() client.SubResourceWriter { return &statusWriter{writer: w} }

type statusWriter struct {
	client.SubResourceWriter
	writer *writer
}

// Patch implements client.SubResourceWriter.
func (w *statusWriter) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.writer.process.write("patch the status of", object, func() error {
		return w.writer.patch(object, patch, func(next *v1beta1.Workspace, ours *v1beta1.Workspace) { next.Status = stored(&ours.Status) })
	})
}

// patch writes the changes since the patch's base version. A patch over any version is refused, because its changes
// cannot be separated from old content.
func (w *writer) patch(object client.Object, patch client.Patch, change func(next, ours *v1beta1.Workspace)) error {
	ours, isWorkspace := object.(*v1beta1.Workspace)
	if !isWorkspace || !reflect.ValueOf(patch).Elem().FieldByName("opts").FieldByName("OptimisticLock").Bool() {
		return fmt.Errorf("nobody simulates this patch of %T", object)
	}
	key := client.ObjectKeyFromObject(object)
	known, found := w.server.objects[workspaces][key].(*v1beta1.Workspace)
	switch {
	case !found:
		return apierrors.NewNotFound(resourceOf(object), key.Name)
	case known.ResourceVersion != ours.ResourceVersion || known.UID != ours.UID:
		return apierrors.NewConflict(resourceOf(object), key.Name, errors.New("the object has been modified"))
	}
	next := known.DeepCopy()
	change(next, ours)
	if !equality.Semantic.DeepEqual(known, next) {
		w.server.replace(known, next)
	}
	next.DeepCopyInto(ours)
	return nil
}

// stored is a status as it comes back: its times have whole seconds.
func stored(status *v1beta1.WorkspaceStatus) v1beta1.WorkspaceStatus {
	out := *status.DeepCopy()
	for i := range out.Conditions {
		out.Conditions[i].LastTransitionTime = out.Conditions[i].LastTransitionTime.Rfc3339Copy()
	}
	return out
}

// Apply implements client.Client.
func (w *writer) Apply(_ context.Context, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	intent, err := w.intent(config)
	if err != nil {
		return err
	}
	return w.process.write("apply", intent, func() error { return w.apply(intent) })
}

func (w *writer) intent(config runtime.ApplyConfiguration) (client.Object, error) {
	content, ok := config.(interface {
		UnstructuredContent() map[string]any
		GetKind() string
	})
	if !ok {
		return nil, fmt.Errorf("nobody simulates %T", config)
	}
	var into client.Object
	switch content.GetKind() {
	case "StatefulSet":
		into = &appsv1.StatefulSet{}
	case "Service":
		into = &corev1.Service{}
	case "NetworkPolicy":
		into = &networkingv1.NetworkPolicy{}
	case "PodDisruptionBudget":
		into = &policyv1.PodDisruptionBudget{}
	default:
		w.process.world.fail("nobody simulates applying %s", content.GetKind())
		return nil, fmt.Errorf("nobody simulates applying %s", content.GetKind())
	}
	return into, runtime.DefaultUnstructuredConverter.FromUnstructured(content.UnstructuredContent(), into)
}

// apply makes an object, or replaces its fields of one owner: all but its status.
func (w *writer) apply(intent client.Object) error {
	key := client.ObjectKeyFromObject(intent)
	known := w.server.objects[kindOf(intent)][key]
	uid, version := intent.GetUID(), intent.GetResourceVersion()
	switch {
	case known == nil && uid != "":
		return apierrors.NewConflict(resourceOf(intent), key.Name, errors.New("it is gone"))
	case known == nil:
		return w.server.create(intent)
	case uid != "" && uid != known.GetUID():
		invalid := apierrors.NewInvalid(schema.GroupKind{Kind: fmt.Sprintf("%T", intent)}, key.Name, nil)
		invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "metadata.uid"}}
		return invalid
	case version != "" && version != known.GetResourceVersion():
		return apierrors.NewConflict(resourceOf(intent), key.Name, errors.New("the object has been modified"))
	}
	next := copied(known)
	next.SetLabels(intent.GetLabels())
	next.SetAnnotations(intent.GetAnnotations())
	next.SetOwnerReferences(intent.GetOwnerReferences())
	spec, wanted := reflect.ValueOf(next).Elem().FieldByName("Spec"), reflect.ValueOf(intent).Elem().FieldByName("Spec")
	if !equality.Semantic.DeepEqual(spec.Interface(), wanted.Interface()) {
		spec.Set(wanted)
		next.SetGeneration(next.GetGeneration() + 1)
	}
	w.server.replace(known, next)
	return nil
}
