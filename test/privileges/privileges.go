// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package privileges compares an account's grants with its requests, by the API server's audit log: no necessary
// grant is missing, and no grant lies idle.
//
// It must not know the roles' owner, or the requests' purpose.
package privileges

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Granted are the privileges of some roles.
type Granted map[grant]bool

// grant is one verb on one resource, in one namespace or, if it is empty, in the whole cluster.
type grant struct{ namespace, privilege string }

func (g grant) String() string {
	if g.namespace == "" {
		return g.privilege
	}
	return g.privilege + " in " + g.namespace
}

// Add adds the grants of a role's rules in a namespace, or in the whole cluster if it is empty.
func (g Granted) Add(namespace string, rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					g[grant{namespace, privilege(group, resource, verb)}] = true
				}
			}
		}
	}
}

// privilege returns the form of one in this package and in Rare: the group, empty for the core, the resource and the
// verb.
func privilege(group, resource, verb string) string {
	return strings.Join([]string{group, resource, verb}, " ")
}

// Rare maps privileges the requests need not show to the reason for them.
type Rare map[string]string

// Forbidden lists the forbidden requests.
func Forbidden(requests []Request) []string {
	var out []string
	for _, r := range requests {
		if r.IsForbidden() {
			out = append(out, fmt.Sprintf("forbidden: %s %s/%s: %s", r.Privilege(), r.ObjectRef.Namespace, r.ObjectRef.Name, r.ResponseStatus.Message))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// IsForbidden reports whether the API server refused the request for want of a privilege.
func (r Request) IsForbidden() bool { return r.ResponseStatus.Code == http.StatusForbidden }

// Compare lists the faults: forbidden requests, unused privileges, and those Rare excuses without any grant.
func Compare(granted Granted, requests []Request, rare Rare) []string {
	problems := Forbidden(requests)
	used := map[grant]bool{}
	for _, r := range requests {
		if r.IsForbidden() {
			continue
		}
		for _, privilege := range r.uses() {
			used[grant{"", privilege}], used[grant{r.ObjectRef.Namespace, privilege}] = true, true
		}
	}
	isExcused := map[string]bool{}
	for g := range granted {
		isExcused[g.privilege] = rare[g.privilege] != ""
		if !used[g] && !isExcused[g.privilege] {
			problems = append(problems, "granted and not used: "+g.String())
		}
	}
	for privilege := range rare {
		if !isExcused[privilege] {
			problems = append(problems, "excused and not granted any more, take it off the list: "+privilege)
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// uses returns a request's necessary privileges.
func (r Request) uses() []string {
	out := []string{r.Privilege()}
	also := r
	switch {
	// An apply is authorised as a create too if the object does not exist yet.
	case r.Verb == "patch" && r.ResponseStatus.Code == http.StatusCreated:
		also.Verb = "create"
	// client-go streams existing objects through a watch, and lists them if an API server does not support it.
	case r.Verb == "watch":
		also.Verb = "list"
	default:
		return out
	}
	return append(out, also.Privilege())
}
