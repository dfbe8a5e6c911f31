// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestNodePools has an administrator choose pools, and the cloud refuse the first machine type for as long as
// anybody asks: Karpenter would ask forever.
func TestNodePools(t *testing.T) {
	const refused, next = "Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3"
	configure(t, "capacity.backend=nodepool")
	refuse(t, `{"rules": [{"sku": "`+refused+`", "outcome": "noCapacity"}]}`)
	ns := namespace(t)
	start := time.Now()
	apply(t, ns, wish("chat", v1beta1.CapacityOnDemand, refused, next))
	waitAttempts(t, ns, "chat", refused+" NoCapacity", next)
	elapsed(t, "from a Workspace to its second pool", start)
	ws := waitReady(t, ns, "chat")
	elapsed(t, "from a Workspace to one that serves", start)
	expectAnswers(t, ws, tinyModel)
	expectHeld(t, ws, 1)
	pools := func() []string {
		return strings.Fields(kubectl(t, "get", "nodepools", "--output=name", "--selector="+v1beta1.LabelWorkspaceUID+"="+string(ws.UID)))
	}
	if held := pools(); len(held) != 1 {
		t.Errorf("NodePools %v, want one", held)
	}
	expectText(t, kubectl(t, "describe", "workspace", "chat", "--namespace="+ns), v1beta1.ReasonNoCapacity, "FallingBack")
	kubectl(t, "delete", "workspace", "chat", "--namespace="+ns, "--wait")
	if left := pools(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
