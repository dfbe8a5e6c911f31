// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
)

// SetupWithManager registers the Reconciler and its watches. sources are the watches of its Provisioner. The
// field indexes must already exist.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, sources []watch.Source, options controller.Options) error {
	return r.watches().Setup(mgr, r, sources, options)
}

func (r *Reconciler) watches() *watch.Watches {
	out := &watch.Watches{Client: r.Client, Waiting: r.waiting, IsOurs: r.records.expectations.IsOwn}
	if r.Preflight.Admission != nil {
		out.Refused = r.preflight.Refused
	}
	return out
}

// WakeForMoney requests a pass over the Workspaces that wait for money.
func (r *Reconciler) WakeForMoney() { r.waiting.WakeForMoney() }

// LookAgain requests a pass over one Workspace, even a waiting one.
func (r *Reconciler) LookAgain(key types.NamespacedName) { r.waiting.LookAgain(key) }
