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

// note says that a version has been written over.
func (p *past) note(before, after *v1beta1.Workspace) {
	if before.ResourceVersion == after.ResourceVersion {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.versions[before.UID] = append(p.versions[before.UID], before.ResourceVersion)
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
