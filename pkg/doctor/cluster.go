// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/modelberth/modelberth/pkg/crd"
	"github.com/modelberth/modelberth/pkg/takeover"
)

const (
	// oldestMinor is the chart's oldest supported minor version of Kubernetes.
	oldestMinor = 31
	// mostSkew is the largest accepted difference between two clocks.
	mostSkew = 10 * time.Second
)

// checkRead reports kinds that could not be read. Without such a warning, an empty report would look like a healthy
// cluster.
func checkRead(e *examination) {
	for _, kind := range slices.Sorted(maps.Keys(e.snapshot.Unread)) {
		e.warn("NotChecked", kind, e.snapshot.Unread[kind], "run kubectl berth doctor as a user with permission to list "+kind)
	}
}

func checkVersion(e *examination) {
	parts := strings.Split(strings.TrimPrefix(e.snapshot.Version, "v"), ".")
	if len(parts) < 2 {
		return
	}
	minor, err := strconv.Atoi(parts[1])
	if err == nil && parts[0] == "1" && minor < oldestMinor {
		e.fail("KubernetesTooOld", "", "the API server is "+e.snapshot.Version,
			fmt.Sprintf("upgrade the cluster to 1.%d or later", oldestMinor))
	}
}

// checkDefinitions checks our CustomResourceDefinitions.
func checkDefinitions(e *examination) {
	if !e.snapshot.isRead("CustomResourceDefinition") {
		return
	}
	for _, name := range []string{crd.Workspaces, crd.InferenceSets} {
		definition := e.snapshot.find("CustomResourceDefinition", "", name)
		if definition == nil {
			e.fail("CRDMissing", named("CustomResourceDefinition", "", name), "the API server does not serve it",
				install+" --set=crds.install=true")
			continue
		}
		if definition.GetDeletionTimestamp() != nil {
			e.fail("CRDTerminating", called(definition), "it is being deleted, and all its objects with it",
				"a deletion cannot be undone: find out what deleted it, so that it does not happen again; once the "+
					"CustomResourceDefinition is gone: "+install+" --set=crds.install=true")
			continue
		}
		if status, _, message := condition(definition, "Established"); status != "True" {
			e.fail("CRDNotEstablished", called(definition), "condition Established is "+orAbsent(status)+": "+message,
				"kubectl describe crd "+name)
		}
		if missing := crd.Missing(definition); len(missing) > 0 {
			e.fail("CRDPruned", called(definition), "the API server drops "+crd.Words(missing)+": the CRD is KAITO's or an old one",
				"stop the tool that replaces it, such as an add-on manager, but never uninstall KAITO's chart: that deletes every Workspace; then: "+
					install+" --set=crds.install=true --take-ownership")
		}
	}
}

// checkKAITO warns about KAITO's controller, which serves the same kind.
func checkKAITO(e *examination) {
	for _, d := range e.deployments() {
		for _, container := range d.Spec.Template.Spec.Containers {
			if takeover.IsControllerImage(container.Image) && d.Status.AvailableReplicas > 0 {
				e.warn("KAITORunning", named("Deployment", d.Namespace, d.Name),
					"it runs "+container.Image+"; Modelberth does not change the Workspaces that KAITO's controller serves",
					"once no Workspace needs KAITO, run the commands that kubectl berth adopt -A prints: they also delete KAITO's webhook, "+
						"which refuses every write to Workspaces while its controller is stopped")
			}
		}
	}
}

// checkClocks compares the clocks of Lease holders with the API server's.
func checkClocks(e *examination) {
	for _, lease := range typed[coordinationv1.Lease](e.snapshot, "Lease") {
		if lease.Spec.RenewTime == nil {
			continue
		}
		ahead := lease.Spec.RenewTime.Sub(e.snapshot.Now)
		if ahead <= mostSkew {
			continue
		}
		id, who := "ControllerClockAhead", "the controller's node"
		if lease.Namespace == "kube-node-lease" {
			id, who = "NodeClockAhead", "node "+lease.Name
		}
		e.fail(id, named("Lease", lease.Namespace, lease.Name),
			fmt.Sprintf("the clock of %s is %s ahead of the API server's", who, ahead.Round(time.Second)),
			"synchronise the clock of "+who+": timedatectl status, chronyc sources")
	}
}
