// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// workspaceNamespaces returns the namespaces with Workspaces.
func (e *examination) workspaceNamespaces() map[string]bool {
	out := map[string]bool{}
	for _, ws := range e.snapshot.of("Workspace") {
		out[ws.GetNamespace()] = true
	}
	return out
}

// checkClaims checks the PersistentVolumeClaims in namespaces with Workspaces.
func checkClaims(e *examination) {
	served := e.workspaceNamespaces()
	for _, claim := range typed[corev1.PersistentVolumeClaim](e.snapshot, "PersistentVolumeClaim") {
		if !served[claim.Namespace] || claim.Status.Phase == corev1.ClaimBound || claim.Spec.StorageClassName == nil {
			continue
		}
		class, object := *claim.Spec.StorageClassName, named("PersistentVolumeClaim", claim.Namespace, claim.Name)
		known := e.snapshot.find("StorageClass", "", class)
		describe := fmt.Sprintf("kubectl describe pvc %s --namespace=%s", claim.Name, claim.Namespace)
		switch {
		case claim.Status.Phase == corev1.ClaimLost:
			e.fail("VolumeLost", object, "its volume is gone", describe)
		case class != "" && known == nil && e.snapshot.isRead("StorageClass"):
			e.fail("StorageClassMissing", object, "it names StorageClass "+class+", which does not exist",
				"kubectl get storageclasses; create the claim again with one of them")
		case known != nil && isEager(known):
			e.fail("VolumePending", object, "it is not bound, although its StorageClass binds immediately", describe)
		}
	}
}

// isEager reports whether a StorageClass binds a volume before a pod uses it.
func isEager(class *unstructured.Unstructured) bool {
	mode, _, _ := unstructured.NestedString(class.Object, "volumeBindingMode")
	return mode != "WaitForFirstConsumer"
}

// checkQuotas looks for exhausted quotas in namespaces with Workspaces.
func checkQuotas(e *examination) {
	served := e.workspaceNamespaces()
	for _, quota := range typed[corev1.ResourceQuota](e.snapshot, "ResourceQuota") {
		if !served[quota.Namespace] {
			continue
		}
		object, describe := named("ResourceQuota", quota.Namespace, quota.Name),
			fmt.Sprintf("kubectl describe quota %s --namespace=%s", quota.Name, quota.Namespace)
		for _, resource := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
			isPods := resource == corev1.ResourcePods
			isGPU := strings.HasPrefix(string(resource), "requests.") && strings.HasSuffix(string(resource), "/gpu")
			hard, used := quota.Status.Hard[resource], quota.Status.Used[resource]
			switch {
			case isGPU && hard.IsZero():
				e.fail("QuotaForbidsGPUs", object, string(resource)+" is limited to 0", describe+"; raise the limit, or move the Workspace")
			case (isPods || isGPU) && used.Cmp(hard) >= 0:
				e.warn("QuotaUsedUp", object, fmt.Sprintf("%s of %s %s are used: no further Workspace can start",
					used.String(), hard.String(), resource), describe)
			}
		}
	}
}

// harmless returns the reasons of conditions that need no action.
func harmless() []string {
	return []string{
		v1beta1.ReasonSuspended, v1beta1.ReasonProgressing, v1beta1.ReasonServing, v1beta1.ReasonInferenceSuccess,
		v1beta1.ReasonInferencePending, v1beta1.ReasonServedByKAITO,
	}
}

// checkWorkspaces reports why Workspaces are stalled or do not answer. The ID of the finding is the reason of the
// condition.
func checkWorkspaces(e *examination) {
	for _, ws := range e.snapshot.of("Workspace") {
		fix := fmt.Sprintf("kubectl berth status %s --namespace=%s", ws.GetName(), ws.GetNamespace())
		if deleted := ws.GetDeletionTimestamp(); deleted != nil {
			if since := e.snapshot.Now.Sub(deleted.Time); since > terminateLimit {
				e.fail("WorkspaceNotReleased", called(&ws), fmt.Sprintf("it has been terminating for %s", since.Round(time.Minute)), fix)
			}
			continue
		}
		status, reason, message := condition(&ws, v1beta1.ConditionStalled)
		if status == "True" {
			e.fail(reason, called(&ws), message, fix+"; docs/troubleshooting.md has a section "+reason)
			continue
		}
		status, reason, message = condition(&ws, v1beta1.ConditionInferenceReady)
		if status == "False" && !slices.Contains(harmless(), reason) {
			e.warn(reason, called(&ws), message, fix+"; docs/troubleshooting.md has a section "+reason)
		}
	}
}

// checkLeftovers looks for objects of deleted Workspaces.
func checkLeftovers(e *examination) {
	if !e.snapshot.isRead("Workspace") {
		return
	}
	uids, names := map[string]bool{}, map[string]bool{}
	for _, ws := range e.snapshot.of("Workspace") {
		uids[string(ws.GetUID())], names[ws.GetNamespace()+"/"+ws.GetName()] = true, true
	}
	for _, o := range e.snapshot.Objects {
		labels := o.GetLabels()
		switch o.GetKind() {
		case "NodeClaim", "NodePool":
			uid, isOurs := labels[v1beta1.LabelWorkspaceUID]
			kaitos, isKAITOs := labels[v1beta1.LabelWorkspace]
			gone := fmt.Sprintf("kubectl delete %s %s", strings.ToLower(o.GetKind()), o.GetName())
			switch {
			case isOurs && !uids[uid]:
				e.fail("MachineLeftOver", called(&o),
					"its Workspace, with UID "+uid+", is gone, but its machine may still cost money", gone)
			case !isOurs && isKAITOs && !names[labels[v1beta1.LabelWorkspaceNamespace]+"/"+kaitos]:
				e.fail("KAITOMachineLeftOver", called(&o), "KAITO's Workspace "+kaitos+" is gone, but its machine may still cost money",
					gone+", or: "+install+" --set=capacity.sweepKAITO=true")
			}
		case "Service", "StatefulSet":
			owner := labels[v1beta1.LabelWorkspace]
			if labels[v1beta1.LabelManagedBy] == v1beta1.ManagedBy && owner != "" && !names[o.GetNamespace()+"/"+owner] &&
				o.GetDeletionTimestamp() == nil {
				e.warn("ObjectLeftOver", called(&o), "its Workspace "+owner+" is gone",
					fmt.Sprintf("kubectl delete %s %s --namespace=%s", strings.ToLower(o.GetKind()), o.GetName(), o.GetNamespace()))
			}
		}
	}
}
