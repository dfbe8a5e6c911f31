// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/sku"
)

// mostStarts limits the number of revisions to decode for one plan.
const mostStarts = 20

// Machines has the machine types of the catalogue.
type Machines interface {
	ResolveSKU(name string) (sku.SKU, error)
}

// Starts reads how much memory the engines of a namespace took at their start, and how fast they are. It stores
// nothing, because the statuses and revisions of the Workspaces have everything.
//
// The namespace is the boundary of trust. Its users decide what runs in their pods, so their engines may report any
// figure. Such a figure changes only plans of this namespace, and only towards less memory and less speed.
type Starts struct {
	Reader   client.Reader
	Machines Machines
	// Memory and Speed select the figures to return.
	Memory, Speed bool
}

// Of returns measurements of the engines in a Workspace's namespace that serve the same preset, the newest Workspaces
// first.
func (s *Starts) Of(ctx context.Context, ws *v1beta1.Workspace) ([]catalog.Measurement, error) {
	list := &v1beta1.WorkspaceList{}
	if err := s.Reader.List(ctx, list, client.InNamespace(ws.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing workspaces: %w", err)
	}
	var alike []*v1beta1.Workspace
	for i := range list.Items {
		other := &list.Items[i]
		if s.reports(other) && presetOf(other) != "" && strings.EqualFold(presetOf(other), presetOf(ws)) {
			alike = append(alike, other)
		}
	}
	slices.SortFunc(alike, func(a, b *v1beta1.Workspace) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var out []catalog.Measurement
	for _, other := range alike[:min(len(alike), mostStarts)] {
		start, ok, err := s.read(ctx, other)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, start)
		}
	}
	return out, nil
}

// reports returns whether the engine of a Workspace has one of the selected figures.
func (s *Starts) reports(ws *v1beta1.Workspace) bool {
	known := ws.Status.Engine
	return known != nil && (s.Memory && known.KVCacheTokens != nil || s.Speed && known.Speed != nil)
}

// read returns the figures of a Workspace's engine; false if they cannot be used, for example because the revision is gone.
func (s *Starts) read(ctx context.Context, ws *v1beta1.Workspace) (catalog.Measurement, bool, error) {
	none := catalog.Measurement{}
	object := &appsv1.ControllerRevision{}
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: ws.Namespace, Name: ws.Status.Engine.Revision}, object)
	switch {
	case apierrors.IsNotFound(err): // the revision was old, and is pruned
		return none, false, nil
	case err != nil:
		return none, false, fmt.Errorf("reading ControllerRevision %s: %w", ws.Status.Engine.Revision, err)
	}
	if !metav1.IsControlledBy(object, ws) {
		return none, false, nil
	}
	pinned, err := render.Decode(object)
	if err != nil {
		return none, false, nil //nolint:nilerr // a revision of another version is skipped; its Workspace reports it
	}
	machine, err := s.Machines.ResolveSKU(pinned.Plan.InstanceType)
	if err != nil {
		return none, false, nil //nolint:nilerr // the catalogue does not know what the machine has
	}
	out, ok := setUpOf(&pinned, &machine)
	if !ok {
		return none, false, nil
	}
	if s.Memory {
		out.Memory = memoryOf(ws.Status.Engine, &pinned.Plan)
	}
	if s.Speed {
		addSpeed(&out, ws.Status.Engine.Speed, &pinned.Plan)
	}
	return out, out.Memory.KVCacheGiB > 0 || out.TPOTMillis > 0, nil
}

// presetOf returns the name of a Workspace's preset; empty if it has none.
func presetOf(ws *v1beta1.Workspace) string {
	if ws.Inference == nil || ws.Inference.Preset == nil {
		return ""
	}
	return ws.Inference.Preset.Name
}
