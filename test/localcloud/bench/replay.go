// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// replay has the controller's objects of one Workspace. A script writes them again, in the controller's order, with one
// write of the status.
type replay struct {
	// status is the last one of the Workspace.
	status any
	// revisions and claims come first; around, the objects around the pods, and the StatefulSets come in a second pass.
	revisions, claims, around, sets []*unstructured.Unstructured
}

// replays reads the objects of all Workspaces, and renders them again for another namespace, as if somebody had written
// them by hand: by the name of the Workspace. prefix makes names and labels of NodeClaims that are new in the cluster.
func (b *Bench) replays(ctx context.Context, namespace, prefix string) (map[string]*replay, error) {
	out := map[string]*replay{}
	inNamespace := client.InNamespace(loadNamespace)
	workspaces, err := b.list(ctx, v1beta1.GroupVersion().WithKind("WorkspaceList"), inNamespace)
	if err != nil {
		return nil, err
	}
	if len(workspaces) != b.settings.Workspaces {
		return nil, fmt.Errorf("there are %d Workspaces, want %d", len(workspaces), b.settings.Workspaces)
	}
	swap := map[string]string{loadNamespace: namespace}
	for _, ws := range workspaces {
		out[ws.GetName()] = &replay{status: ws.Object["status"]}
		swap[string(ws.GetUID())] = prefix + ws.GetName()
	}
	claims, err := b.list(ctx, nodeClaims(), client.MatchingLabels{v1beta1.LabelMachineWorkspaceNamespace: loadNamespace})
	if err != nil {
		return nil, err
	}
	for i := range claims {
		swap[claims[i].GetName()] = prefix + claims[i].GetName()
	}
	for i := range claims {
		if of := out[claims[i].GetLabels()[v1beta1.LabelMachineWorkspaceName]]; of != nil {
			of.claims = append(of.claims, standIn(&claims[i], swap))
		}
	}
	for _, kind := range []struct {
		list schema.GroupVersionKind
		to   func(*replay) *[]*unstructured.Unstructured
	}{
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevisionList"}, func(r *replay) *[]*unstructured.Unstructured { return &r.revisions }},
		{schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicyList"}, func(r *replay) *[]*unstructured.Unstructured { return &r.around }},
		{schema.GroupVersionKind{Version: "v1", Kind: "ServiceList"}, func(r *replay) *[]*unstructured.Unstructured { return &r.around }},
		{statefulSets(), func(r *replay) *[]*unstructured.Unstructured { return &r.sets }},
	} {
		objects, err := b.list(ctx, kind.list, inNamespace)
		if err != nil {
			return nil, err
		}
		for i := range objects {
			if owner := metav1.GetControllerOf(&objects[i]); owner != nil && owner.Kind == v1beta1.WorkspaceKind && out[owner.Name] != nil {
				list := kind.to(out[owner.Name])
				*list = append(*list, standIn(&objects[i], swap))
			}
		}
	}
	for name, of := range out {
		if len(of.revisions) == 0 || len(of.claims) == 0 || len(of.around) < 2 || len(of.sets) == 0 {
			return nil, fmt.Errorf("the objects of Workspace %s are incomplete: %d revisions, %d NodeClaims, %d policies and Services, %d StatefulSets",
				name, len(of.revisions), len(of.claims), len(of.around), len(of.sets))
		}
	}
	return out, nil
}

// script measures the cluster's times for the Workspaces of a user and a script that writes the controller's objects. No
// controller can be faster with the same writes.
func (b *Bench) script(ctx context.Context, replays map[string]*replay) error {
	b.settings.Say("the same Workspaces and objects by a script")
	if err := b.removeFloor(ctx); err != nil {
		return err
	}
	course := b.course(scriptNamespace)
	b.figures.Script = course
	if err := b.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: scriptNamespace}}); err != nil {
		return fmt.Errorf("making namespace %s: %w", scriptNamespace, err)
	}
	return b.stage(ctx, &b.figures.ScriptWork, func() error {
		if err := b.write(ctx, replays); err != nil {
			return err
		}
		return b.await(ctx, "pods ready", course.Serving, len(replays))
	})
}

// write creates the Workspaces and writes their objects in passes like the controller's.
func (b *Bench) write(ctx context.Context, replays map[string]*replay) error {
	queue := newPasses(ctx, 2*len(replays))
	defer queue.end()
	var running sync.WaitGroup
	errs := make([]error, scriptWorkers)
	for i := range errs {
		running.Go(func() {
			errs[i] = queue.work(func(ctx context.Context, name string, isFirst bool) error {
				return b.pass(ctx, replays[name], name, isFirst)
			})
		})
	}
	err := b.applyTo(queue.ctx, scriptNamespace, len(replays), queue.add)
	if err != nil {
		queue.end()
	}
	running.Wait()
	return errors.Join(append([]error{err}, errs...)...)
}

// scriptWorkers is the number of the controller's workers.
const scriptWorkers = 16

// pass writes the objects of one pass of the controller. The first one ends with the NodeClaims and the status.
func (b *Bench) pass(ctx context.Context, of *replay, name string, isFirst bool) error {
	if !isFirst {
		return b.createAll(ctx, slices.Concat(of.around, of.sets))
	}
	ws := &unstructured.Unstructured{}
	ws.SetGroupVersionKind(v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))
	ws.SetNamespace(scriptNamespace)
	ws.SetName(name)
	before := ws.DeepCopy()
	ws.SetFinalizers([]string{v1beta1.Finalizer})
	if err := b.kube.Patch(ctx, ws, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("adding the finalizer of Workspace %s: %w", name, err)
	}
	if err := b.createAll(ctx, of.revisions); err != nil {
		return err
	}
	if _, err := b.list(ctx, nodeClaims(), client.MatchingLabels{v1beta1.LabelWorkspaceUID: scriptPrefix + name}); err != nil {
		return err
	}
	if err := b.createAll(ctx, of.claims); err != nil {
		return err
	}
	before = ws.DeepCopy()
	ws.Object["status"] = of.status
	if err := b.kube.Status().Patch(ctx, ws, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing the status of Workspace %s: %w", name, err)
	}
	return nil
}

func (b *Bench) createAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := b.kube.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// removeFloor deletes the stand-ins of the floor and their machines.
func (b *Bench) removeFloor(ctx context.Context) error {
	b.settings.Say("  removing them")
	if err := b.kube.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: floorNamespace}}); err != nil {
		return fmt.Errorf("deleting namespace %s: %w", floorNamespace, err)
	}
	claims, err := b.list(ctx, nodeClaims(), client.MatchingLabels{v1beta1.LabelMachineWorkspaceNamespace: floorNamespace})
	if err != nil {
		return err
	}
	err = inParallel(len(claims), func(i int) error { return client.IgnoreNotFound(b.kube.Delete(ctx, &claims[i])) })
	if err != nil {
		return fmt.Errorf("deleting the NodeClaims of the floor: %w", err)
	}
	return b.untilNoClaims(ctx)
}

// passes is a queue of passes like the controller's: the second pass of a Workspace waits behind the first passes of the
// Workspaces that exist by then. It ends after all passes, or after a failure.
type passes struct {
	ctx  context.Context
	end  context.CancelFunc
	todo chan pass // has room for all passes
	left atomic.Int64
}

type pass struct {
	name    string
	isFirst bool
}

func newPasses(ctx context.Context, n int) *passes {
	p := &passes{todo: make(chan pass, n)}
	p.ctx, p.end = context.WithCancel(ctx)
	p.left.Store(int64(n))
	return p
}

// add adds the first pass of a Workspace.
func (p *passes) add(name string) { p.todo <- pass{name, true} }

// work does passes until the queue ends.
func (p *passes) work(do func(ctx context.Context, name string, isFirst bool) error) error {
	for {
		select {
		case <-p.ctx.Done():
			return nil
		case next := <-p.todo:
			if err := do(p.ctx, next.name, next.isFirst); err != nil {
				p.end()
				return err
			}
			if next.isFirst {
				p.todo <- pass{next.name, false}
			}
			if p.left.Add(-1) == 0 {
				p.end()
			}
		}
	}
}
