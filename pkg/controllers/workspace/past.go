// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// past remembers which versions of Workspaces this process has written over. The cache shows them until the
// event of the write arrives, and a pass that starts from one of them writes nothing that is not refused.
type past struct {
	mu       sync.Mutex
	versions map[types.UID][]string
}

// write has a Workspace written over. The version that it is written over is past from before the write, whose event
// may come before its answer, unless that says that nothing was written.
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

// isOurs says whether what came after a version of a Workspace was written here: of one version there is one next.
func (p *past) isOurs(before *v1beta1.Workspace) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.versions[before.UID], before.ResourceVersion)
}

// isPast says whether a Workspace has been written over. What is shown after that is as new as what we know.
func (p *past) isPast(ws *v1beta1.Workspace) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.versions[ws.UID], ws.ResourceVersion) {
		return true
	}
	delete(p.versions, ws.UID)
	return false
}

// forget drops what is known of a Workspace that is gone.
func (p *past) forget(workspace types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.versions, workspace)
}
