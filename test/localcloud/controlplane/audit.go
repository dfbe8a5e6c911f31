// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"path/filepath"
)

// auditLog is the component name of the API server's audit log.
const auditLog = "audit"

// auditPolicy books who asked for what, for what is installed in the cluster: all
// service accounts but those of the cluster itself. Tests count with it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  userGroups: ["system:serviceaccounts:kube-system"]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

func (p Plan) auditPolicy() string {
	return cmp.Or(p.AuditPolicy, filepath.Join(p.Layout.Config(), "audit-policy.yaml"))
}
