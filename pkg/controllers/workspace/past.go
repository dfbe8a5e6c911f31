// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// past records the versions of Workspaces that this process has overwritten. The cache shows them until the event of
// the write arrives. The API server refuses every write of a pass over one of them.
type past struct {
	mu       sync.Mutex
	versions map[types.UID][]string
}

// write overwrites a Workspace. Its version counts as overwritten from before the write, because the event may
// precede the response, unless the response rules a write out.
func (p *past) write(ws *v1beta1.Workspace, patch func() error) error {
	uid, version := ws.UID, ws.ResourceVersion
	p.mu.Lock()
	p.versions[uid] = append(p.versions[uid], version)
	p.mu.Unlock()
	err := patch()
	if err == nil && ws.ResourceVersion != version {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.versions[uid] = slices.DeleteFunc(p.versions[uid], func(known string) bool { return known == version })
	if len(p.versions[uid]) == 0 {
		delete(p.versions, uid)
	}
	return err
}

// isOurs reports whether this process wrote the successor of a version of a Workspace: each version has one
// successor.
func (p *past) isOurs(before *v1beta1.Workspace) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.versions[before.UID], before.ResourceVersion)
}

// isPast reports whether a Workspace has been overwritten. Any later version is as new as ours.
func (p *past) isPast(ws *v1beta1.Workspace) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.versions[ws.UID], ws.ResourceVersion) {
		return true
	}
	delete(p.versions, ws.UID)
	return false
}

// forget drops the versions of a Workspace.
func (p *past) forget(workspace types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.versions, workspace)
}
