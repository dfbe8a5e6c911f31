// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Reasons why modelberth-agent ends a pod of an incomplete group.
const (
	agentMemberLost     = "MemberLost"
	agentMemberReplaced = "MemberReplaced"
	// agentMemberAbsent interrupts nothing, because the engine has not started.
	agentMemberAbsent = "MemberAbsent"
)

// agentSaid is the termination message of modelberth-agent.
type agentSaid struct{ Reason, Message string }

// lastOfAgent returns the last failure of a pod's agent, with the agent's message. It returns nil if the agent runs,
// was killed or failed to start.
func lastOfAgent(pod *corev1.Pod) (*corev1.ContainerStateTerminated, agentSaid) {
	for _, status := range unsettled(pod) {
		last := ended(pod, status)
		if !isAgent(pod, status.Name) || last == nil || last.ExitCode == 0 {
			continue
		}
		if last.Reason == reasonOOMKilled || isStartFailure(last) {
			continue
		}
		var said agentSaid
		if json.Unmarshal([]byte(last.Message), &said) != nil || said.Message == "" {
			said = agentSaid{}
		}
		return last, said
	}
	return nil, agentSaid{}
}

// isAgent reports whether a container runs modelberth-agent.
func isAgent(pod *corev1.Pod, container string) bool {
	workspace := pod.Labels[v1beta1.LabelWorkspace]
	return container == workload.WeightsContainer(workspace) || container == workload.CommitContainer(workspace)
}

func (s agentSaid) isAboutMember() bool {
	return s.Reason == agentMemberLost || s.Reason == agentMemberReplaced || s.Reason == agentMemberAbsent
}

// weights turns the agent's message into a reason. The finding stays while the agent retries, because the result of the
// retry is open.
func weights(_ *Input, pod *corev1.Pod) (Finding, bool) {
	last, said := lastOfAgent(pod)
	if last == nil || said.isAboutMember() {
		return Finding{}, false
	}
	reason, message := agentSentence(last, said)
	return finding(reason, "%s (retrying)", message), true
}

func agentSentence(last *corev1.ContainerStateTerminated, said agentSaid) (reason, message string) {
	reasons := map[string]string{
		"HubUnreachable":   v1beta1.ReasonWeightsHubUnreachable,
		"Unauthorized":     v1beta1.ReasonWeightsUnauthorized,
		"NotFound":         v1beta1.ReasonWeightsNotFound,
		"ChecksumMismatch": v1beta1.ReasonWeightsChecksum,
		"DiskFull":         v1beta1.ReasonWeightsDiskFull,
		"StorageFailed":    v1beta1.ReasonWeightsFetchFailed,
	}
	if said.Message == "" {
		return v1beta1.ReasonWeightsFetchFailed,
			fmt.Sprintf("fetching the weights failed with %s%s", exit(last.ExitCode), quoted(errorLine(last.Message)))
	}
	message = wording.Clip(withoutPorts(said.Message), maxMessage-len(" (retrying)"))
	if reason, known := reasons[said.Reason]; known {
		return reason, message
	}
	return v1beta1.ReasonWeightsFetchFailed, message
}

// memberLost covers a pod that its agent ended because another pod of its group was lost or restarted. Engines do not
// notice such a loss in time.
func memberLost(_ *Input, pod *corev1.Pod) (Finding, bool) {
	last, said := lastOfAgent(pod)
	if last == nil || !said.isAboutMember() {
		return Finding{}, false
	}
	if said.Reason == agentMemberAbsent {
		return finding(v1beta1.ReasonMemberLost, "%s (retrying)", withoutPorts(said.Message)), true
	}
	return finding(v1beta1.ReasonMemberLost,
		"pod %q ended because its group is incomplete%s: all pods of the group restart together; if that repeats, "+
			"kubectl logs --previous of the named pod shows why", pod.Name, quoted(withoutPorts(said.Message))), true
}
