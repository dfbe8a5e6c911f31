// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// installInterval is the interval between checks whether a provisioner or InferenceSets have been installed. It is
// short, because little works without them. Each check costs two requests.
const installInterval = 30 * time.Second

// errInstalled ends the process, so that it restarts with the new kind.
var errInstalled = errors.New("a missing kind has been installed: restarting to use it")

// installWatch ends the process once a missing kind is served.
type installWatch struct {
	mapper meta.RESTMapper
	kind   schema.GroupKind
	// versions are the versions that the process can use; none means any.
	versions []string
	// every is the interval between checks; 0 means installInterval.
	every time.Duration
}

// Start checks until the API server serves the kind or the context ends.
func (w *installWatch) Start(ctx context.Context) error {
	ticker := time.NewTicker(cmp.Or(w.every, installInterval))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			// The mapper asks the API server again about unknown kinds.
			if _, err := w.mapper.RESTMapping(w.kind, w.versions...); err == nil {
				return errInstalled
			}
		}
	}
}

// NeedLeaderElection returns false, because every replica watches for itself.
func (*installWatch) NeedLeaderElection() bool { return false }
