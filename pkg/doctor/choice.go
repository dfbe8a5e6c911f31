// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Choice are the Deployments with the controller's labels. Anybody can set these labels in a namespace of their own, but
// only an administrator can write a ClusterRoleBinding or an admission policy.
type Choice struct {
	// Installed are named by such an object. Alike are the others.
	Installed, Alike []appsv1.Deployment
}

// Choice finds the controllers of a cluster. The snapshot needs its Deployments, ClusterRoles, ClusterRoleBindings and
// ValidatingAdmissionPolicies.
func (s *Snapshot) Choice() Choice {
	var out Choice
	accounts := s.accounts()
	for _, d := range typed[appsv1.Deployment](s, "Deployment") {
		switch {
		case !isOurs(d.Labels):
		case accounts[accountOf(&d)]:
			out.Installed = append(out.Installed, d)
		default:
			out.Alike = append(out.Alike, d)
		}
	}
	return out
}

// accounts returns the ServiceAccounts that an administrator chose for a controller, by accountOf: those that our
// ClusterRoleBindings or policies name, and those that may write the status of all Workspaces.
func (s *Snapshot) accounts() map[string]bool {
	out := map[string]bool{}
	writers := map[string]bool{}
	writes := right{"kaito.sh", "workspaces/status", "patch"}
	for _, role := range typed[rbacv1.ClusterRole](s, "ClusterRole") {
		writers[role.Name] = slices.ContainsFunc(role.Rules, writes.isIn)
	}
	for _, binding := range typed[rbacv1.ClusterRoleBinding](s, "ClusterRoleBinding") {
		if !isOurs(binding.Labels) && !writers[binding.RoleRef.Name] {
			continue
		}
		for _, subject := range binding.Subjects {
			if subject.Kind == rbacv1.ServiceAccountKind {
				out[subject.Namespace+":"+subject.Name] = true
			}
		}
	}
	for _, policy := range s.of("ValidatingAdmissionPolicy") {
		text, err := json.Marshal(policy.Object["spec"])
		if err != nil || !isOurs(policy.GetLabels()) {
			continue
		}
		for _, part := range strings.Split(string(text), userOfAccount)[1:] {
			out[part[:strings.IndexFunc(part+" ", isNoName)]] = true
		}
	}
	return out
}

// userOfAccount begins the user name of a ServiceAccount; NAMESPACE:NAME follows.
const userOfAccount = "system:serviceaccount:"

// isNoName reports whether a character is in no NAMESPACE:NAME.
func isNoName(r rune) bool {
	isName := r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("-.:", r)
	return !isName
}

// accountOf returns NAMESPACE:NAME of the ServiceAccount of a Deployment's pods.
func accountOf(d *appsv1.Deployment) string {
	account := d.Spec.Template.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	return d.Namespace + ":" + account
}

// Controllers returns the Deployments of Modelberth's controller. If no object of an administrator names one, for example
// because the bindings are missing, these are all Deployments with its labels.
func (c *Choice) Controllers() []appsv1.Deployment {
	if len(c.Installed) > 0 {
		return c.Installed
	}
	return c.Alike
}

func (e *examination) controllers() []appsv1.Deployment { return e.choice.Controllers() }

// SettingsConfigMaps returns the ConfigMaps with settings of the controllers, as NAMESPACE/NAME. Only Deployments that
// an administrator's object names count: any other one could name any ConfigMap that the user may read.
func (s *Snapshot) SettingsConfigMaps() []string {
	found := s.Choice()
	chosen := found.Installed
	if len(chosen) == 0 && len(found.Alike) == 1 && !s.isRead("ClusterRoleBinding") { // then the user is no administrator
		chosen = found.Alike
	}
	var out []string
	for i := range chosen {
		out = append(out, setting(&chosen[i], "settings-config-map")...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lacks begins the reason why a Deployment is not known to be the controller.
const lacks = "no ClusterRoleBinding and no admission policy of Modelberth names the ServiceAccount of "

// NotBound is the reason why a Deployment of Choice.Alike is not the controller.
const NotBound = "it has the controller's labels, but " + lacks + "its pods"

// checkChoice names the Deployments that have the controller's labels, but are not known to be the controller.
func checkChoice(e *examination) {
	found := e.choice
	switch {
	case len(found.Installed) > 0:
		for i := range found.Alike {
			d := &found.Alike[i]
			e.warn("ControllerNotBound", named("Deployment", d.Namespace, d.Name),
				NotBound+": the doctor checks "+words(found.Installed)+" instead",
				fmt.Sprintf("if it is no controller: kubectl label deployment %s --namespace=%s %s- %s-", d.Name, d.Namespace, appName, partOf))
		}
	case len(found.Alike) > 1:
		e.warn("ControllerUncertain", "", "several Deployments have the controller's labels, and "+lacks+"any of them: the doctor checks "+
			words(found.Alike), install)
	}
}

// words lists Deployments for a message.
func words(all []appsv1.Deployment) string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Namespace + "/" + all[i].Name
	}
	return strings.Join(names, " and ")
}
