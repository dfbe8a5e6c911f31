// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import "strings"

// WithoutPrefix drops the variables by which an engine reads its flags, with a warning: their values
// would bypass every check.
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
	return kept, []string{sentence(
		"inference.engine.env: %s ignored, because variables that start with %s set flags: set them in inference.engine.args",
		are(dropped), prefix)}
}
