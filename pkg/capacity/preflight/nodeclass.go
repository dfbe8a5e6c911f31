// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// checkClass returns an error if the node class is not ready, or if the disk of its machines is too small.
func (c *Checker) checkClass(ctx context.Context, p Purchase) error {
	problem, err := problemOf(ctx, c.reads, c.classState(p.NodeClass), classState.problem)
	if err != nil || problem != "" || p.DiskGiB == 0 || !isDescribed(p.NodeClass) {
		return cmp.Or(err, misconfigured(problem))
	}
	disk := Disk{GiB: p.DiskGiB, LocalGiB: c.cluster.LocalDiskGiB(p.InstanceType)}
	problem, err = problemOf(ctx, c.reads, c.classObject(p.NodeClass), func(class *unstructured.Unstructured) string {
		if class == nil {
			return "" // the planner uses the administrator's settings
		}
		return LacksDisk(class, disk)
	})
	return cmp.Or(err, misconfigured(problem))
}

// MetadataWarning returns a warning if the machines of a node class let pods read the cloud's metadata. It is only
// advice, so a failed read yields none.
func (c *Checker) MetadataWarning(ctx context.Context, ref v1beta1.NodeClassReference) string {
	if !isDescribed(ref) {
		return ""
	}
	warning, err := problemOf(ctx, c.reads, c.classObject(ref), func(class *unstructured.Unstructured) string {
		if class == nil {
			return ""
		}
		return ExposesMetadata(class)
	})
	if err != nil {
		log.FromContext(ctx).V(1).Info("metadata options were not checked", "nodeClass", ref.Name, "reason", err.Error())
	}
	return warning
}

// classState is the state of a node class, with a phrase about it.
type classState struct {
	state  refusal.ClassState
	phrase string
}

// problem returns the problem of the class, with the remedy. A class that is unreadable or has no state counts as
// ready.
func (s classState) problem() string {
	switch s.state {
	case refusal.ClassMissing:
		return s.phrase + ": create it, or name another one in the chart's nodeClasses"
	case refusal.ClassNotReady:
		return s.phrase + ": fix what its conditions report"
	default:
		return ""
	}
}

func (c *Checker) classState(ref v1beta1.NodeClassReference) source[classState] {
	return source[classState]{
		name: nameOf(ref),
		read: func(ctx context.Context) (classState, error) {
			state, phrase, err := c.cluster.Classes.Class(ctx, ref)
			return classState{state, phrase}, err
		},
	}
}

// classObject reads a node class; nil if it does not exist or may not be read.
func (c *Checker) classObject(ref v1beta1.NodeClassReference) source[*unstructured.Unstructured] {
	return source[*unstructured.Unstructured]{
		name: "the spec of " + nameOf(ref),
		read: func(ctx context.Context) (*unstructured.Unstructured, error) {
			mapping, err := c.cluster.Cached.RESTMapper().RESTMapping(schema.GroupKind{Group: ref.Group, Kind: ref.Kind})
			if meta.IsNoMatchError(err) {
				return nil, nil
			}
			if err != nil {
				return nil, fmt.Errorf("finding the resource of node class %s: %w", ref.Name, err)
			}
			class := &unstructured.Unstructured{}
			class.SetGroupVersionKind(mapping.GroupVersionKind)
			err = c.cluster.Live.Get(ctx, client.ObjectKey{Name: ref.Name}, class)
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
				return nil, nil
			}
			if err != nil {
				return nil, fmt.Errorf("reading %s %q: %w", ref.Kind, ref.Name, err)
			}
			return class, nil
		},
	}
}

func nameOf(ref v1beta1.NodeClassReference) string {
	return fmt.Sprintf("%s.%s %s", ref.Kind, ref.Group, ref.Name)
}
