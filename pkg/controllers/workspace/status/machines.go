// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
)

// machines returns the conditions NodeClaimReady, NodesReady and ResourceReady.
func (p pass) machines() (claims, nodes, resource metav1.Condition) {
	claims = absent(v1beta1.ConditionNodeClaimReady)
	nodes = no(v1beta1.ConditionNodesReady, v1beta1.ReasonNodeNotReady, "no machine yet")
	switch {
	case p.Plan.Plan == nil && p.Plan.Err != nil:
		nodes.Message = "no machine is bought: " + p.Plan.Err.Message
	case p.Workspace.IsSuspended:
		nodes.Reason, nodes.Message = v1beta1.ReasonSuspended, p.suspendedMessage("buy machines")
	case p.Plan.isOnNodes():
		nodes = p.existingNodes()
	case p.Attempts.Err != nil:
		claims = no(v1beta1.ConditionNodeClaimReady, Reason(p.Attempts.Err), progress.Message(p.Attempts.Err))
		nodes.Message = claims.Message
	case p.Plan.Plan != nil && p.stalled != nil && p.Machines.Count == 0:
		nodes.Message = "no machine is bought: " + p.stalled.Message
	case p.Plan.Plan != nil:
		claims, nodes = p.claims(), nodesOf(p.Machines.Serving, p.Plan.Plan, p.Machines.Unheard)
	}
	if holds(nodes) {
		return claims, nodes, yes(v1beta1.ConditionResourceReady, successOf(nodes), nodes.Message)
	}
	resource = no(v1beta1.ConditionResourceReady, nodes.Reason, nodes.Message)
	if p.Machines.Count == 0 && !p.Plan.isOnNodes() && nodes.Reason == v1beta1.ReasonNodeNotReady {
		resource.Reason = v1beta1.ReasonResourceNotReady
	}
	if claims.Status == metav1.ConditionFalse {
		resource.Reason, resource.Message = claims.Reason, claims.Message
	}
	resource.Message += p.Endpoint.Meanwhile
	return claims, nodes, resource
}

// successOf returns the reason of ResourceReady while NodesReady is true.
func successOf(nodes metav1.Condition) string {
	if nodes.Reason == v1beta1.ReasonFaultRepeats {
		return nodes.Reason
	}
	return v1beta1.ReasonResourceSuccess
}

// claims returns the condition NodeClaimReady. For a delayed machine, it quotes the provisioner's reason and message.
func (p pass) claims() metav1.Condition {
	serving, want := p.Machines.Serving, p.Plan.Plan.Nodes
	for i := range serving {
		if machine := &serving[i]; !machine.Initialized {
			return p.pending(machine)
		}
	}
	if len(serving) < want {
		return no(v1beta1.ConditionNodeClaimReady, v1beta1.ReasonNodeClaimNotReady,
			fmt.Sprintf("waiting for %d of %d machines of type %s", want-len(serving), want, p.Plan.Plan.InstanceType))
	}
	return yes(v1beta1.ConditionNodeClaimReady, v1beta1.ReasonNodeClaimsReady,
		fmt.Sprintf("%d of %d machines initialised", want, want))
}

// pending returns the condition NodeClaimReady for a machine that is not yet usable.
func (p pass) pending(machine *capacity.Machine) metav1.Condition {
	reason, message := machine.Reason, machine.Message
	if reason != "" && refusal.IsNeutral(reason) { // the provisioner has not looked at the machine yet
		reason, message = "", ""
	}
	stage := "being launched"
	if machine.Registered {
		stage = "registered but not initialised yet"
	} else if machine.Launched {
		stage = "launched but not registered yet"
	}
	text := fmt.Sprintf("machine %s (%s) is %s", machine.Name, machine.InstanceType, stage)
	verdict := &p.Attempts.Verdict
	isRefused := verdict.Cause != refusal.None && !verdict.Final && !verdict.LookAgain.IsZero()
	switch {
	case isRefused:
		text += fmt.Sprintf("; refused so far (%s: %s); the attempt times out at %s",
			verdict.Cause, verdict.Message, progress.Clock(verdict.LookAgain))
	case message != "":
		text += ": " + message
	}
	return no(v1beta1.ConditionNodeClaimReady, cmp.Or(reason, v1beta1.ReasonNodeClaimNotReady), text)
}

// nodesOf returns the condition NodesReady for the machines of a plan.
func nodesOf(machines []capacity.Machine, plan *planner.Plan, unheard string) metav1.Condition {
	ready, withheld, spared := 0, "", ""
	for i := range machines {
		withheld = cmp.Or(withheld, machines[i].Withheld)
		switch machine := &machines[i]; {
		case machine.NodeName == "" || !machine.Initialized:
			continue
		case !machine.NodeReady && machine.Withheld != "":
			return no(v1beta1.ConditionNodesReady, v1beta1.ReasonFaultRepeats, machine.Withheld)
		case !machine.NodeReady:
			return nodeNotReady(machine.NodeName, unheard)
		case machine.GPUs < plan.GPUsPerNode:
			if machine.Withheld != "" {
				return no(v1beta1.ConditionNodesReady, v1beta1.ReasonFaultRepeats, machine.Withheld)
			}
			return lacksGPUs(machine.NodeName, int64(machine.GPUs), plan, replaced(machine))
		case machine.Spared != "" && machine.Fault.Message == "":
			spared = cmp.Or(spared, fmt.Sprintf("; %s; the plan needs only %d, so the machine stays: if a pod fails on a broken GPU, delete the pod",
				machine.Spared, plan.GPUsPerNode))
		}
		ready++
	}
	message := fmt.Sprintf("%d of %d nodes ready", min(ready, plan.Nodes), plan.Nodes) // a replaced one may still exist
	if ready < plan.Nodes {
		return no(v1beta1.ConditionNodesReady, v1beta1.ReasonNodeNotReady, message)
	}
	if withheld != "" { // the faulty machine may still serve
		return yes(v1beta1.ConditionNodesReady, v1beta1.ReasonFaultRepeats, message+"; "+withheld)
	}
	return yes(v1beta1.ConditionNodesReady, v1beta1.ReasonNodesReady, message+spared)
}

// existingNodes returns the condition NodesReady for the existing nodes of a plan.
func (p pass) existingNodes() metav1.Condition {
	plan := p.Plan.Plan
	if p.Attempts.Err != nil {
		return no(v1beta1.ConditionNodesReady, Reason(p.Attempts.Err), progress.Message(p.Attempts.Err))
	}
	for i := range p.Nodes {
		switch node := &p.Nodes[i]; {
		case !node.Exists:
			return no(v1beta1.ConditionNodesReady, v1beta1.ReasonNodeNotReady, fmt.Sprintf("node %s is gone", node.Name))
		case !node.IsReady:
			return nodeNotReady(node.Name, p.Machines.Unheard)
		case plan.GPUResource != "" && node.GPUs < int64(plan.GPUsPerNode):
			return lacksGPUs(node.Name, node.GPUs, plan, kept(node))
		}
	}
	return yes(v1beta1.ConditionNodesReady, v1beta1.ReasonNodesReady,
		fmt.Sprintf("%d of %d nodes ready: %s", plan.Nodes, plan.Nodes, strings.Join(plan.NodeNames, ", ")))
}

// nodeNotReady returns the condition NodesReady for a node that is not Ready. If unheard is not empty, the message adds
// it to explain why nothing is replaced.
func nodeNotReady(name, unheard string) metav1.Condition {
	message := fmt.Sprintf("node %s is not Ready", name)
	if unheard != "" {
		message += "; " + unheard
	}
	return no(v1beta1.ConditionNodesReady, v1beta1.ReasonNodeNotReady, message)
}

// lacksGPUs returns the condition NodesReady for a node with too few usable GPUs. shortage explains which GPUs no pod
// can use; empty if that is unknown.
func lacksGPUs(name string, gpus int64, plan *planner.Plan, shortage string) metav1.Condition {
	return no(v1beta1.ConditionNodesReady, v1beta1.ReasonNodePluginsNotReady, cmp.Or(shortage, fmt.Sprintf(
		"node %s advertises %d of %d %s: check that the device plugin runs there", name, gpus, plan.GPUsPerNode, plan.GPUResource)))
}

// replaced describes the shortage of GPUs on a bought machine; empty without a shortage.
func replaced(machine *capacity.Machine) string {
	if machine.Shortage == "" {
		return ""
	}
	return machine.Shortage + "; the machine is replaced if that lasts"
}

// kept describes the shortage of GPUs on an existing node; empty without a shortage.
func kept(node *Node) string {
	if node.Shortage == "" {
		return ""
	}
	return node.Shortage + "; an existing node is never replaced: repair or replace it yourself"
}

// workerNodes returns the names of the nodes in use: the nodes of the plan in its order, or the sorted nodes of
// machines.
func (p pass) workerNodes() []string {
	if !p.Plan.isOnNodes() {
		return slices.Sorted(slices.Values(p.Machines.NodeNames))
	}
	var names []string
	for i := range p.Nodes {
		if p.Nodes[i].Exists {
			names = append(names, p.Nodes[i].Name)
		}
	}
	return names
}
