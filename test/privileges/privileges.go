// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package privileges compares what roles grant to an account with what the account asked for, by the API server's audit
// log: nothing that it needs is missing, and nothing that it has lies idle.
//
// It must not know whose roles these are, or what the requests are for.
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

// grant is one verb on one resource, in one namespace or, where that is empty, in the whole cluster.
type grant struct{ namespace, privilege string }

func (g grant) String() string {
	if g.namespace == "" {
		return g.privilege
	}
	return g.privilege + " in " + g.namespace
}

// Add adds what the rules of a role grant in a namespace, or in the whole cluster where that is empty.
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

// privilege is how this package, and Rare, write one: the group, which is empty for the core, the resource and the verb.
func privilege(group, resource, verb string) string {
	return strings.Join([]string{group, resource, verb}, " ")
}

// Rare are privileges that the requests need not show, and why the account has them.
type Rare map[string]string

// Forbidden lists the requests that were.
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

// Compare lists what is wrong: requests that were forbidden, privileges that no request made use of, and those that Rare
// excuses although they are granted nowhere.
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

// uses are the privileges that a request takes.
func (r Request) uses() []string {
	out := []string{r.Privilege()}
	also := r
	switch {
	// What an apply is authorised as where there is no such object yet.
	case r.Verb == "patch" && r.ResponseStatus.Code == http.StatusCreated:
		also.Verb = "create"
	// client-go streams what is there through a watch, and lists it where an API server does not serve that.
	case r.Verb == "watch":
		also.Verb = "list"
	default:
		return out
	}
	return append(out, also.Privilege())
}
