// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stale finds passes over outdated objects: the cache shows a Workspace until the event of the last write arrives.
// Such passes end without an effect, and the next one is soon. It must not know what a pass does.
package stale

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Expectations records the versions of Workspaces that this process has overwritten. The cache shows them until the event of
// the write arrives. The API server refuses every write of a pass over one of them.
type Expectations struct {
	mu       sync.Mutex
	versions map[types.UID][]string
}

// NewExpectations returns Expectations of no write.
func NewExpectations() *Expectations { return &Expectations{versions: map[types.UID][]string{}} }

// Write overwrites a Workspace. Its version counts as overwritten from before the write, because the event may
// precede the response, unless the response rules a write out.
func (e *Expectations) Write(ws *v1beta1.Workspace, patch func() error) error {
	uid, version := ws.UID, ws.ResourceVersion
	e.mu.Lock()
	e.versions[uid] = append(e.versions[uid], version)
	e.mu.Unlock()
	err := patch()
	if err == nil && ws.ResourceVersion != version {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.versions[uid] = slices.DeleteFunc(e.versions[uid], func(known string) bool { return known == version })
	if len(e.versions[uid]) == 0 {
		delete(e.versions, uid)
	}
	return err
}

// IsOwn reports whether this process wrote the successor of a version of a Workspace: each version has one
// successor.
func (e *Expectations) IsOwn(before *v1beta1.Workspace) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.versions[before.UID], before.ResourceVersion)
}

// IsStale reports whether a Workspace has been overwritten. Any later version is as new as ours.
func (e *Expectations) IsStale(ws *v1beta1.Workspace) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.versions[ws.UID], ws.ResourceVersion) {
		return true
	}
	delete(e.versions, ws.UID)
	return false
}

// Forget drops the versions of a Workspace.
func (e *Expectations) Forget(workspace types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.versions, workspace)
}
