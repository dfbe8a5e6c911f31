// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// installInterval is how often the cluster is asked whether a provisioner has been installed.
const installInterval = 30 * time.Second

// errInstalled ends the process, so that it starts anew with the back end that it lacked.
var errInstalled = errors.New("a provisioner has been installed: starting anew to use it")

// installWatch ends the process once a kind that was missing is served.
type installWatch struct {
	mapper meta.RESTMapper
	kind   schema.GroupKind
}

// Start asks until the kind is served or the context ends.
func (w *installWatch) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, installInterval, false, func(context.Context) (bool, error) {
		_, err := w.mapper.RESTMapping(w.kind)
		return err == nil, nil
	})
	if ctx.Err() != nil {
		return nil // the process is ending anyway
	}
	return errors.Join(err, errInstalled)
}

// NeedLeaderElection says that every replica looks for itself.
func (*installWatch) NeedLeaderElection() bool { return false }
