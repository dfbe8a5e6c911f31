// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	_ "embed"
	"fmt"
	"path/filepath"
)

// KwokNode is the annotation, key and value, of nodes that are only objects.
const (
	KwokNodeKey   = "kwok.x-k8s.io/node"
	KwokNodeValue = "fake"
)

// kwokPods is where pods on such nodes have their addresses, which nobody can reach.
const kwokPods = "10.128.0.0/16"

// kwokStages says what becomes of such nodes and their pods.
//
//go:embed kwok.yaml
var kwokStages []byte

func (p Plan) kwokStages() string { return filepath.Join(p.Layout.Config(), "kwok.yaml") }

// Kwok keeps nodes that are only objects Ready, and lets their pods be Ready as
// soon as they are bound.
func (p Plan) Kwok() Program {
	address := fmt.Sprintf("%s:%d", healthHost, kwokPort)
	return p.program(Kwok, p.Programs.Kwok, Probe{Address: address, Path: "/healthz"},
		"--kubeconfig="+p.kubeconfig(Kwok),
		"--config="+p.kwokStages(),
		"--manage-nodes-with-annotation-selector="+KwokNodeKey+"="+KwokNodeValue,
		"--cidr="+kwokPods,
		"--server-address="+address,
	)
}
