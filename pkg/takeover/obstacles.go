// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Obstacle prevents a takeover.
type Obstacle struct {
	ID string `json:"id"`
	// Object is the object at fault. Workspace is the key of the only Workspace that the obstacle blocks; empty if it
	// blocks all.
	Object    string `json:"object"`
	Workspace string `json:"workspace,omitempty"`
	Problem   string `json:"problem"`
	Fix       string `json:"fix"`
}

// Blocks reports whether the obstacle blocks a Workspace.
func (o *Obstacle) Blocks(namespace, name string) bool {
	return o.Workspace == "" || o.Workspace == namespace+"/"+name
}

// Step is one command, with its reason.
type Step struct {
	Why     string `json:"why"`
	Command string `json:"command"`
}

// ofWorkspace returns the obstacles of one Workspace.
func ofWorkspace(ws *v1beta1.Workspace, entry *Entry) []Obstacle {
	key := ws.Namespace + "/" + ws.Name
	problem := func(id, problem, fix string) []Obstacle {
		return []Obstacle{{ID: id, Object: "Workspace " + key, Workspace: key, Problem: problem, Fix: fix}}
	}
	switch {
	case !ws.DeletionTimestamp.IsZero():
		return problem("Deleting", "it is being deleted", "wait until it is gone")
	case entry.State != Unadopted:
		return nil
	case ws.Suspend:
		return problem("Suspended", "it is suspended, but KAITO's pods still run",
			fmt.Sprintf(`kubectl patch workspace %s -n %s --type=merge -p '{"suspend":false}'`, ws.Name, ws.Namespace))
	case ws.Tuning != nil:
		return problem("Tuning", "it tunes a model, which Modelberth does not support", "let KAITO's controller finish it")
	case entry.Workload == "":
		return problem("NothingServes", "KAITO's controller has not created its StatefulSet",
			"wait until KAITO's controller has created it, or delete the Workspace and create it again")
	}
	return nil
}

// obstacles returns the obstacles for all Workspaces of the cluster.
func (c *Cluster) obstacles() []Obstacle {
	var out []Obstacle
	for _, d := range c.controllers() {
		if d.Status.AvailableReplicas > 0 || d.Spec.Replicas == nil || *d.Spec.Replicas > 0 {
			out = append(out, Obstacle{
				ID: "KAITORunning", Object: fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name),
				Problem: "KAITO's controller is running and would act on the same Workspaces", Fix: scale(d),
			})
		}
	}
	for _, name := range c.webhooks() {
		out = append(out, Obstacle{
			ID: "KAITOWebhook", Object: "ValidatingWebhookConfiguration " + name,
			Problem: "without KAITO's controller, it makes the API server reject every write to Workspaces, even their deletion",
			Fix:     "kubectl delete validatingwebhookconfiguration " + name,
		})
	}
	return out
}

func scale(d *appsv1.Deployment) string {
	return fmt.Sprintf("kubectl scale deployment %s -n %s --replicas=0", d.Name, d.Namespace)
}

// controllers returns the Deployments of KAITO's controllers.
func (c *Cluster) controllers() []*appsv1.Deployment {
	var out []*appsv1.Deployment
	for i := range c.Deployments {
		for _, container := range c.Deployments[i].Spec.Template.Spec.Containers {
			if IsControllerImage(container.Image) {
				out = append(out, &c.Deployments[i])
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b *appsv1.Deployment) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out
}

// IsControllerImage reports whether an image is that of KAITO's workspace controller.
func IsControllerImage(image string) bool {
	name, _, _ := strings.Cut(image, "@")
	base := name[strings.LastIndex(name, "/")+1:]
	base, _, _ = strings.Cut(base, ":")
	return base == "workspace" && strings.Contains(name, "kaito/")
}

// webhooks returns the sorted names of the webhook configurations for Workspaces and InferenceSets. They are KAITO's,
// because Modelberth has none.
func (c *Cluster) webhooks() []string {
	var out []string
	for i := range c.Webhooks {
		hooks, _, _ := unstructured.NestedSlice(c.Webhooks[i].Object, "webhooks")
		isTheirs := slices.ContainsFunc(hooks, func(hook any) bool {
			fields, _ := hook.(map[string]any)
			name, _, _ := unstructured.NestedString(fields, "name")
			return strings.HasSuffix(name, ".kaito.sh")
		})
		if isTheirs {
			out = append(out, c.Webhooks[i].GetName())
		}
	}
	slices.Sort(out)
	return out
}

// Annotations with the Helm release of an object.
const (
	annotationRelease          = "meta.helm.sh/release-name"
	annotationReleaseNamespace = "meta.helm.sh/release-namespace"
)

// uninstall returns the steps to remove KAITO's controller, in order. They never uninstall its chart with Helm: that
// would delete the device plugin and the definition of Workspaces, and with it all Workspaces. An annotation on the
// definition does not prevent that, because Helm reads only its stored manifests.
func (c *Cluster) uninstall() []Step {
	var out []Step
	for _, d := range c.controllers() {
		out = append(out, Step{Why: "stop KAITO's controller", Command: scale(d)})
	}
	for _, name := range c.webhooks() {
		out = append(out, Step{
			Why:     "let the API server accept writes to Workspaces without KAITO's controller",
			Command: "kubectl delete validatingwebhookconfiguration " + name,
		})
	}
	var after []Step
	for _, d := range c.controllers() {
		release, namespace := d.Annotations[annotationRelease], d.Annotations[annotationReleaseNamespace]
		if release == "" {
			continue
		}
		for i := range c.Definitions {
			definition := &c.Definitions[i]
			marks := definition.GetAnnotations()
			if marks[annotationRelease] == release && marks[annotationReleaseNamespace] == namespace {
				out = append(out, Step{
					Why: "keep a later upgrade of KAITO's chart from deleting the CRD",
					Command: fmt.Sprintf("kubectl annotate crd %s helm.sh/resource-policy=keep %s- %s- --overwrite",
						definition.GetName(), annotationRelease, annotationReleaseNamespace),
				})
			}
		}
		out = append(out, Step{
			Why: "delete Helm's record of the release, because helm uninstall would delete every Workspace and the GPU device plugin",
			Command: fmt.Sprintf("kubectl delete secret -n %s -l owner=helm,name=%s",
				namespace, release),
		})
		after = append(after, Step{
			Why:     "once every Workspace is taken over, delete KAITO's controller",
			Command: fmt.Sprintf("kubectl delete deployment %s -n %s", d.Name, d.Namespace),
		})
	}
	if len(out) == 0 {
		return []Step{}
	}
	return append(out, after...)
}
