// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// karpenters returns the Deployments of Karpenter's controller. There are none if the cloud runs Karpenter outside the
// cluster.
func (e *examination) karpenters() []appsv1.Deployment {
	return slices.DeleteFunc(e.deployments(), func(d appsv1.Deployment) bool { return d.Labels[appName] != "karpenter" })
}

func checkProvisioner(e *examination) {
	if !e.buys() || !e.snapshot.isRead("CustomResourceDefinition") {
		return
	}
	for _, d := range e.controllers() {
		kinds := []string{"nodeclaims.karpenter.sh"}
		if e.backEnd(&d) == "nodepool" {
			kinds = append(kinds, "nodepools.karpenter.sh")
		}
		for _, name := range kinds {
			e.checkKarpenterKind(name)
		}
		for _, k := range e.karpenters() {
			e.checkKarpenter(&k, len(setting(&d, "static-node-pools")) > 0 && first(setting(&d, "static-node-pools"), "") != "false")
		}
	}
}

func (e *examination) checkKarpenterKind(name string) {
	definition := e.snapshot.find("CustomResourceDefinition", "", name)
	if definition == nil {
		e.fail("KarpenterMissing", named("CustomResourceDefinition", "", name), "the API server does not serve it",
			"install Karpenter, or: "+install+" --set=capacity.backend=existing")
		return
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	isV1 := func(each any) bool {
		fields, _ := each.(map[string]any)
		return fields["name"] == "v1" && fields["served"] == true
	}
	if !slices.ContainsFunc(versions, isV1) {
		e.fail("KarpenterTooOld", called(definition), "it does not serve version v1", "upgrade Karpenter to 1.0 or later, with its CRDs")
	}
}

// checkKarpenter checks one Deployment of Karpenter.
func (e *examination) checkKarpenter(k *appsv1.Deployment, needsStatic bool) {
	object, gates := named("Deployment", k.Namespace, k.Name), ""
	for _, container := range k.Spec.Template.Spec.Containers {
		for _, env := range container.Env {
			if env.Name == "FEATURE_GATES" {
				gates = env.Value
			}
		}
	}
	helm := "helm upgrade karpenter OCI-CHART --namespace=" + k.Namespace + " --reuse-values --set=settings.featureGates."
	if k.Status.AvailableReplicas == 0 {
		e.fail("KarpenterUnavailable", object, "no replica is available",
			fmt.Sprintf("kubectl logs deployment/%s --namespace=%s", k.Name, k.Namespace))
	}
	if needsStatic && !strings.Contains(gates, "StaticCapacity=true") {
		e.fail("StaticCapacityOff", object,
			"capacity.staticNodePools needs the feature gate StaticCapacity; FEATURE_GATES is "+orAbsent(gates),
			helm+"staticCapacity=true")
	}
	if strings.Contains(gates, "NodeRepair=true") {
		e.warn("NodeRepairOn", object, "Karpenter deletes unhealthy nodes without draining them, although Modelberth replaces them",
			helm+"nodeRepair=false")
	}
}

// nodeClassKinds returns the kinds of NodeClasses in a snapshot.
func nodeClassKinds() []string {
	return []string{"AKSNodeClass", "EC2NodeClass", "NodeClass", "KaitoNodeClass"}
}

func checkNodeClasses(e *examination) {
	if !e.buys() {
		return
	}
	for _, d := range e.controllers() {
		for _, value := range setting(&d, "node-class") {
			parts := strings.Split(value, "/")
			if len(parts) != 3 || !slices.Contains(nodeClassKinds(), parts[1]) || parts[1] == "KaitoNodeClass" ||
				!e.snapshot.isRead(parts[1]) {
				continue
			}
			class := e.snapshot.find(parts[1], "", parts[2])
			if class == nil {
				e.fail("NodeClassMissing", named(parts[1], "", parts[2]), "the controller buys machines with it, but it does not exist",
					"create it, or name another one: "+install+" --set-json=nodeClasses=…")
				continue
			}
			e.checkNodeClass(class)
		}
	}
}

func (e *examination) checkNodeClass(class *unstructured.Unstructured) {
	describe := fmt.Sprintf("kubectl describe %s %s", strings.ToLower(class.GetKind()), class.GetName())
	status, reason, message := condition(class, "Ready")
	switch {
	case class.GetDeletionTimestamp() != nil:
		e.fail("NodeClassTerminating", called(class), "it is being deleted", "create it again, or name another one in nodeClasses")
	case status == "":
		e.fail("NodeClassUnwatched", called(class), "it has no condition Ready: no controller reconciles it",
			"check that Karpenter runs for this cloud; "+describe)
	case status != "True":
		e.fail("NodeClassNotReady", called(class), strings.TrimSpace(reason+" "+message), describe)
	}
}

// Deadlines for the stages of a machine. They are longer than the controller's own.
const (
	launchLimit    = 15 * time.Minute
	registerLimit  = 30 * time.Minute
	terminateLimit = 20 * time.Minute
)

// checkMachines looks for stuck NodeClaims of Modelberth.
func checkMachines(e *examination) {
	for _, claim := range e.snapshot.of("NodeClaim") {
		if claim.GetLabels()[v1beta1.LabelWorkspaceUID] == "" {
			continue
		}
		age := e.snapshot.Now.Sub(claim.GetCreationTimestamp().Time)
		describe := "kubectl describe nodeclaim " + claim.GetName()
		launched, _, why := condition(&claim, "Launched")
		registered, _, _ := condition(&claim, "Registered")
		initialized, _, waits := condition(&claim, "Initialized")
		switch deleted := claim.GetDeletionTimestamp(); {
		case deleted != nil:
			if since := e.snapshot.Now.Sub(deleted.Time); since > terminateLimit {
				e.fail("MachineNotReleased", called(&claim),
					fmt.Sprintf("it has been terminating for %s, and its machine may still cost money", since.Round(time.Minute)),
					describe+"; Karpenter's log has the reason")
			}
		case launched != "True" && age > launchLimit:
			e.fail("MachineNotLaunched", called(&claim), fmt.Sprintf("requested %s ago: %s", age.Round(time.Minute),
				orAbsent(why)), describe)
		case launched == "True" && registered != "True" && age > registerLimit:
			e.fail("MachineNotRegistered", called(&claim), "its machine runs, but no node has joined the cluster",
				describe+"; look at the machine's console in the cloud")
		case registered == "True" && initialized != "True" && age > registerLimit:
			e.fail("MachineNotInitialized", called(&claim), "its node joined but is not usable: "+orAbsent(waits), describe)
		}
	}
}
