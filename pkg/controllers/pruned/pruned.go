// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pruned decides whether controllers must leave their objects as they are, because the API server prunes fields
// of these objects.
//
// It also decides how an object reports that. It must not depend on why a field is missing.
package pruned

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/crd"
)

// Schema checks the watched CustomResourceDefinitions. Missing returns the first named definition that lacks fields,
// and the missing fields.
type Schema interface {
	Missing(definitions ...string) (name string, missing []string)
}

// Check explains why nothing may be written, and how to fix that; empty if all fields exist. A nil schema lacks
// nothing.
func Check(schema Schema, definitions ...string) string {
	if schema == nil {
		return ""
	}
	name, missing := schema.Missing(definitions...)
	if name == "" {
		return ""
	}
	effect := "no InferenceSet is changed or scaled"
	if name == crd.Workspaces {
		effect = "nothing is bought or changed"
	}
	return fmt.Sprintf("the CustomResourceDefinition %s lacks %s: another tool replaced the definition, for example with KAITO's, or the definition "+
		"is older than this controller. Until the definition is restored, %s, and running models continue. Have an administrator stop that tool, and apply "+
		"the CustomResourceDefinitions of this version: run helm upgrade --take-ownership with its chart, or kubectl apply with the chart's "+
		"files/crds", name, crd.Words(missing), effect)
}

// Reports records the objects for which this process has published an event about pruned fields.
type Reports struct {
	mu   sync.Mutex
	uids map[types.UID]struct{}
}

// Publish reports pruned fields of a known object once, as an event, and returns whether the object is known. A known
// object has the finalizer of its controller.
//
// Pruned fields stay stored until somebody writes the object, even if only its status
// (docs/adr/0011-pruned-workspaces.md). So only an object that no controller has handled yet may get a condition.
func (r *Reports) Publish(events record.EventRecorder, object client.Object, finalizer, message string) (isKnown bool) {
	if !slices.Contains(object.GetFinalizers(), finalizer) {
		return false
	}
	if r.isFirst(object.GetUID()) {
		events.Event(object, corev1.EventTypeWarning, v1beta1.ReasonAPIPruned, message)
	}
	return true
}

func (r *Reports) isFirst(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, isReported := r.uids[uid]; isReported {
		return false
	}
	if r.uids == nil {
		r.uids = map[types.UID]struct{}{}
	}
	r.uids[uid] = struct{}{}
	return true
}
