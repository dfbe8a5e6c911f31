// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// nodeClass returns the NodeClass that the Workspace asks for, if it is allowed, or nil.
func (r *Reconciler) nodeClass(ws *v1beta1.Workspace) (*v1beta1.NodeClassReference, error) {
	wants := func(class v1beta1.NodeClassReference) bool {
		return class.Name == ws.Annotations[v1beta1.AnnotationNodeClassName]
	}
	field, name := "annotation "+v1beta1.AnnotationNodeClassName, ws.Annotations[v1beta1.AnnotationNodeClassName]
	if placement := ws.Resource.Placement; placement != nil && placement.NodeClassRef != nil {
		field, name = "resource.placement.nodeClassRef", placement.NodeClassRef.Name
		wants = func(class v1beta1.NodeClassReference) bool { return class == *placement.NodeClassRef }
	}
	if name == "" {
		return nil, nil
	}
	if i := slices.IndexFunc(r.NodeClasses, wants); i >= 0 {
		return &r.NodeClasses[i], nil
	}
	allowed := make([]string, 0, len(r.NodeClasses))
	for _, class := range r.NodeClasses {
		allowed = append(allowed, class.Group+"/"+class.Kind+"/"+class.Name)
	}
	return nil, specInvalid(fmt.Sprintf("%s names NodeClass %q, which the administrator does not allow; allowed: %s",
		field, name, strings.Join(append(allowed, "none by leaving it out"), ", ")))
}

// foreignDomains are those of labels that belong to the cluster, the provisioner or us: on a machine
// they decide things that a namespace's user must not decide.
func foreignDomains() []string {
	return []string{
		"kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.azure.com", "karpenter.k8s.aws", "kaito.sh", "modelberth.dev",
		"kubernetes.azure.com", "eks.amazonaws.com", "cloud.google.com", "nvidia.com",
	}
}

// nodeLabels are the user's labels for machines, and a warning that names those that are left out.
func nodeLabels(ws *v1beta1.Workspace) (map[string]string, []string) {
	out := map[string]string{}
	if ws.Resource.LabelSelector == nil {
		return out, nil
	}
	maps.Copy(out, ws.Resource.LabelSelector.MatchLabels)
	for _, expression := range ws.Resource.LabelSelector.MatchExpressions {
		if len(expression.Values) == 1 {
			out[expression.Key] = expression.Values[0]
		}
	}
	reserved := v1beta1.ReservedSelectorKeys()
	var left []string
	for _, key := range slices.Sorted(maps.Keys(out)) {
		if isForeign(key) {
			delete(out, key)
			if !slices.Contains(reserved, key) { // those are known to be left out
				left = append(left, key)
			}
		}
	}
	if len(left) == 0 {
		return out, nil
	}
	return out, []string{fmt.Sprintf("resource.labelSelector: machines that are bought do not get %s, which the cluster sets",
		strings.Join(left, ", "))}
}

func isForeign(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc(foreignDomains(), func(foreign string) bool {
		return domain == foreign || strings.HasSuffix(domain, "."+foreign)
	})
}
