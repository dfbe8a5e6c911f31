// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// A back end is an Observer, an Actor and a CostSource, and may be a Surger. The interfaces are declared here because
// several packages use each of them: its callers, and the packages that combine back ends.

// Observer reads the machines of a back end. It writes nothing.
type Observer interface {
	// Kind returns kubectl's name for the objects of machines.
	Kind(owner Owner) string
	// Observe returns the machines of a Workspace from caches. known are the machines in its status.
	Observe(ctx context.Context, owner Owner, known []Created, gpuResource string) ([]Machine, error)
	// Held returns the API server's machines of a Workspace, without those being deleted.
	Held(ctx context.Context, owner Owner, known []Created) ([]Machine, error)
	// Names returns the names of the machines of an attempt, which follow from its number.
	Names(owner Owner, attempt int32, count int) ([]string, error)
	// Owners returns the owners of machines among all Workspaces of a name, by UID.
	Owners(ctx context.Context, namespace, name string) ([]Owner, error)
	// Events returns the events about machines.
	Events(ctx context.Context, machines []types.UID) ([]refusal.Event, error)
	// Class returns the state of a node class and, unless it is ready, a phrase that describes the problem.
	Class(ctx context.Context, class v1beta1.NodeClassReference) (refusal.ClassState, string, error)
}

// Actor creates and deletes machines. Every method is idempotent.
type Actor interface {
	// PinPods makes pods run on the machines of a request, if their rendered form does not suffice.
	PinPods(request Request, pods *corev1.PodTemplateSpec) error
	// Ensure creates the missing machines of a request, and deletes all other machines of its owner except those to
	// keep.
	Ensure(ctx context.Context, request Request) (Outcome, error)
	// Release deletes all machines of a Workspace, and returns the names of the remaining ones.
	Release(ctx context.Context, owner Owner) ([]string, error)
}

// CostSource reads the cost of machines.
type CostSource interface {
	// MachineCosts returns the costs of all machines from caches.
	MachineCosts(ctx context.Context) ([]MachineCost, error)
	// LiveMachineCosts returns the same from the API server.
	LiveMachineCosts(ctx context.Context) ([]MachineCost, error)
}

// Surger is a back end that may be able to tell apart the machines of two attempts. Then both can have machines at once.
type Surger interface {
	// CanSurge reports whether it distinguishes them for a Workspace.
	CanSurge(owner Owner) bool
	// Replaces returns how the back end replaces one machine of an attempt without the others.
	Replaces(owner Owner) Replacing
	// ReleaseBut deletes all machines of a Workspace except those to keep, and returns the names of the remaining
	// ones.
	ReleaseBut(ctx context.Context, owner Owner, keep []string) ([]string, error)
}
