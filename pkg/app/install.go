// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	ticker := time.NewTicker(installInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			// The mapper asks the API server anew for what it does not know.
			if _, err := w.mapper.RESTMapping(w.kind); err == nil {
				return errInstalled
			}
		}
	}
}

// NeedLeaderElection says that every replica looks for itself.
func (*installWatch) NeedLeaderElection() bool { return false }
