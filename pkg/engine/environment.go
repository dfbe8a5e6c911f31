// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import "strings"

// MergeEnv merges the user's variables into ours. A variable that both lists have keeps our place and gets the user's
// value. The user's other variables follow ours.
func MergeEnv(ours, users []EnvVar) []EnvVar {
	return over(ours, users, func(v EnvVar) string { return v.Name })
}

// WithoutReserved drops variables that a user may not set, with a warning and the reason for each.
func WithoutReserved(env []EnvVar, reasons map[string]string) ([]EnvVar, []string) {
	var kept []EnvVar
	var warnings []string
	for _, variable := range env {
		if reason, reserved := reasons[variable.Name]; reserved {
			warnings = append(warnings, Sentence("inference.engine.env: %s is ignored, because %s", variable.Name, reason))
			continue
		}
		kept = append(kept, variable)
	}
	return kept, warnings
}

// WithoutPrefix drops variables that set an engine's flags, with a warning, because no check covers their values.
func WithoutPrefix(env []EnvVar, prefix string) ([]EnvVar, []string) {
	var kept []EnvVar
	var dropped []string
	for _, variable := range env {
		if strings.HasPrefix(variable.Name, prefix) {
			dropped = append(dropped, variable.Name)
			continue
		}
		kept = append(kept, variable)
	}
	if len(dropped) == 0 {
		return kept, nil
	}
	return kept, []string{Sentence(
		"inference.engine.env: %s ignored, because variables that start with %s set flags: set them in inference.engine.args",
		are(dropped), prefix)}
}
