// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

// The places of a Workspace's fields in an InferenceSet. Fields without a place are omitted.
var (
	selectorField = regexp.MustCompile(`^resource\.labelSelector\b`)
	templateField = regexp.MustCompile(`^(inference|resource)\b`)
	absentField   = regexp.MustCompile(`^resource\.(count|preferredNodes)\b`)
	// In a sentence, a field follows a space or a bracket.
	selectorName = regexp.MustCompile(`(^|[ (])resource\.labelSelector\b`)
	templateName = regexp.MustCompile(`(^|[ (])(inference|resource)\b([.]|$|[ :])`)
)

// forTemplate returns a Workspace's bounds and rules for the template in an InferenceSet, so that both accept the same.
// It omits rules about immutable fields, because a set replaces its Workspaces.
func (a additions) forTemplate() additions {
	var out additions
	for _, b := range a.Bounds {
		if at, ok := inTemplate(b.At); ok {
			b.At = at
			out.Bounds = append(out.Bounds, b)
		}
	}
	for _, r := range a.Rules {
		at, ok := inTemplate(r.At)
		if !ok || strings.Contains(r.Rule, "oldSelf") {
			continue
		}
		r.At = at
		r.Message = selectorName.ReplaceAllString(r.Message, "${1}spec.labelSelector")
		r.Message = templateName.ReplaceAllString(r.Message, "${1}spec.template.${2}${3}")
		out.Rules = append(out.Rules, r)
	}
	return out
}

// inTemplate returns the place of a Workspace's field in an InferenceSet.
func inTemplate(at string) (string, bool) {
	switch {
	case absentField.MatchString(at) || !templateField.MatchString(at):
		return "", false
	case selectorField.MatchString(at):
		return selectorField.ReplaceAllString(at, "spec.labelSelector"), true
	default:
		return "spec.template." + at, true
	}
}

// and returns both.
func (a additions) and(others additions) additions {
	return additions{Bounds: append(a.Bounds, others.Bounds...), Rules: append(a.Rules, others.Rules...)}
}
