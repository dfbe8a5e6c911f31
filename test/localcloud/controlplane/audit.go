// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"path/filepath"
)

// auditLog is the component name of the API server's audit log.
const auditLog = "audit"

func (p Plan) auditPolicy() string {
	return cmp.Or(p.AuditPolicy, filepath.Join(p.Layout.Config(), "audit-policy.yaml"))
}
