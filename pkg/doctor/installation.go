// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

const (
	// install is the command that installs missing parts of the chart.
	install = "helm upgrade --install modelberth charts/modelberth --namespace=modelberth-system --reset-then-reuse-values"
	// appName is the label of the controller's objects. If the chart's nameOverride changes it, partOf identifies them.
	appName = "app.kubernetes.io/name"
	partOf  = "app.kubernetes.io/part-of"
	product = "modelberth"
	// router is appName of the routers' pods, whatever nameOverride is.
	router = product + "-router"
)

// isOurs reports whether labels are those of the controller's objects.
func isOurs(labels map[string]string) bool {
	return labels[appName] == product || labels[partOf] == product
}

func (e *examination) deployments() []appsv1.Deployment {
	return typed[appsv1.Deployment](e.snapshot, "Deployment")
}

// setting returns the values of a flag of the controller.
func setting(d *appsv1.Deployment, flag string) []string {
	var out []string
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, arg := range container.Args {
			if value, found := strings.CutPrefix(arg, "--"+flag+"="); found {
				out = append(out, value)
			}
		}
	}
	return out
}

// first returns the first value, or otherwise if there is none.
func first(values []string, otherwise string) string {
	if len(values) == 0 {
		return otherwise
	}
	return values[0]
}

func orAbsent(text string) string {
	if text == "" {
		return "absent"
	}
	return text
}

// backEnd returns the back end of a controller; empty for auto without Karpenter.
func (e *examination) backEnd(d *appsv1.Deployment) string {
	chosen := first(setting(d, "capacity-backend"), "auto")
	if chosen != "auto" {
		return chosen
	}
	if e.snapshot.find("CustomResourceDefinition", "", "nodeclaims.karpenter.sh") != nil {
		return "nodeclaim"
	}
	return ""
}

// buys reports whether a controller buys machines through Karpenter.
func (e *examination) buys() bool {
	return slices.ContainsFunc(e.controllers(), func(d appsv1.Deployment) bool {
		return slices.Contains([]string{"nodeclaim", "nodepool"}, e.backEnd(&d))
	})
}
