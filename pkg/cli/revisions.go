// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
)

// pinned is one ControllerRevision of a Workspace.
type pinned struct {
	name    string
	number  int64
	created metav1.Time
	// accepted reports whether the Workspace runs this revision, or is about to.
	accepted bool
	render.Revision
}

// unreadableError is about a revision that this version cannot read.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string {
	return e.err.Error() + ": a newer version may have written it: use kubectl-berth of that version"
}
func (e *unreadableError) Unwrap() error { return e.err }

// revisions returns the revisions of a Workspace, oldest first.
func (c *Cluster) revisions(ctx context.Context, ws *v1beta1.Workspace) ([]pinned, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	list := &appsv1.ControllerRevisionList{}
	owned := client.MatchingLabels{v1beta1.LabelRevisionOwner: ws.Name}
	if err := c.Objects.List(ctx, list, client.InNamespace(ws.Namespace), owned); err != nil {
		return nil, worded(err, "ControllerRevisions of Workspace "+key(ws))
	}
	var out []pinned
	for i := range list.Items {
		object := &list.Items[i]
		if !metav1.IsControlledBy(object, ws) {
			continue
		}
		decoded, err := render.Decode(object)
		if err != nil {
			return nil, &exitError{code: codeCluster, err: &unreadableError{err}}
		}
		out = append(out, pinned{
			name: object.Name, number: object.Revision, created: object.CreationTimestamp, Revision: decoded,
			accepted: ws.Status.Plan != nil && ws.Status.Plan.Revision == object.Name,
		})
	}
	slices.SortFunc(out, func(a, b pinned) int { return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.name, b.name)) })
	return out, nil
}

// history returns a Workspace with its revisions, oldest first.
func (c *Cluster) history(ctx context.Context, name string) (*v1beta1.Workspace, []pinned, error) {
	ws, err := c.workspace(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	revisions, err := c.revisions(ctx, ws)
	return ws, revisions, err
}

// accepted returns the revision in the status, or else the newest; nil if there is none.
func accepted(revisions []pinned) *pinned {
	for i := range revisions {
		if revisions[i].accepted {
			return &revisions[i]
		}
	}
	if len(revisions) == 0 {
		return nil
	}
	return &revisions[len(revisions)-1]
}

// numbers lists revisions for a sentence.
func numbers(revisions []pinned) string {
	var out []string
	for i := range revisions {
		out = append(out, fmt.Sprint(revisions[i].number))
	}
	return orList(out)
}

// made returns a Workspace built from the inputs of a revision, for comparisons.
func made(in *render.Inputs) *v1beta1.Workspace {
	ws := &v1beta1.Workspace{Resource: in.Resource, Inference: in.Inference}
	ws.Annotations = in.Annotations
	return ws
}

// changesBetween returns the changes between the inputs of two revisions.
func changesBetween(old, updated *render.Inputs) ([]fieldChange, error) {
	return changesOf(made(old), made(updated), old.Config, updated.Config)
}
