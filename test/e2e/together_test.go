// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// TestTogether tells at the same time what neither the cloud nor the installation is changed for: each story has a
// namespace to itself, and waits most of the time.
func TestTogether(t *testing.T) {
	tellAll(t, []story{
		{"weights from elsewhere", weightSources},
		{"another machine", otherMachine},
		{"an example of KAITO's", kaitoExample},
		{"adapters", adapters},
		{"the command line", commandLine},
		{"suspended, and a template", suspendAndTemplate},
		{"replicas behind one Service", replicasBehindOneService},
		{"a failed template of a set", failedTemplateOfASet},
	})
}
