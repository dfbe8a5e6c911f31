// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeover decides about Workspaces of KAITO's controller: the user's consent, KAITO's objects with their
// price, and what prevents a takeover.
//
// It takes objects as they are stored in the cluster. It must not know how the controller plans, buys or serves.
package takeover

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// State is how far a Workspace has been taken over.
type State string

// The states.
const (
	// Unadopted: no user has consented, or the consent is for another Workspace because the manifest was copied.
	Unadopted State = ""
	// Frozen: everything keeps running as KAITO's controller left it.
	Frozen State = "Frozen"
	// Edited: the spec has changed since the takeover, so the Workspace gets machines and pods of this controller.
	Edited State = "Edited"
	// Replaced: after an edit, pods of this controller have replaced KAITO's. Only a report has this state.
	Replaced State = "Replaced"
)

// Consent is a user's agreement that one Workspace may be taken over as it is.
type Consent struct {
	// UID is the UID of the Workspace.
	UID types.UID `json:"uid"`
	// Generation and Spec (a hash) identify the version of the spec. The hash alone is not enough: a later version of this
	// program hashes more fields.
	Generation int64  `json:"generation"`
	Spec       string `json:"spec"`
	// Pods is the number of pods. After an edit, it is recorded nowhere else.
	Pods int `json:"pods,omitempty"`
}

// NewConsent returns the consent for a Workspace as it is, with this number of pods.
func NewConsent(ws *v1beta1.Workspace, pods int) (*Consent, error) {
	hash, err := specHash(ws)
	if err != nil {
		return nil, err
	}
	return &Consent{UID: ws.UID, Generation: ws.Generation, Spec: hash, Pods: pods}, nil
}

// mostPods is more than KAITO's controller runs for a Workspace. It is a limit because users of the namespace can write
// any number.
const mostPods = 64

// consentOf returns the consent for a Workspace, or nil.
func consentOf(ws *v1beta1.Workspace) *Consent {
	out := &Consent{}
	text, isSet := ws.Annotations[v1beta1.AnnotationAdopted]
	if !isSet || json.Unmarshal([]byte(text), out) != nil || out.UID == "" || out.UID != ws.UID ||
		out.Pods < 0 || out.Pods > mostPods {
		return nil
	}
	return out
}

// WantedPods returns the number of pods that KAITO's controller creates for a Workspace: one on each machine.
func WantedPods(ws *v1beta1.Workspace) int {
	if consent := consentOf(ws); consent != nil && consent.Pods > 0 {
		return consent.Pods
	}
	return max(1, int(ws.Status.TargetNodeCount))
}

// StateOf returns how far a Workspace has been taken over. An edit that was reverted does not count.
func StateOf(ws *v1beta1.Workspace) State {
	consent := consentOf(ws)
	if consent == nil {
		return Unadopted
	}
	if consent.Generation == ws.Generation || wasFrozen(ws) {
		return Frozen
	}
	if hash, err := specHash(ws); err != nil || hash != consent.Spec {
		return Edited
	}
	return Frozen
}

// wasFrozen reports whether the controller has already found this generation frozen. That may have been an earlier
// version, with a different hash of the same spec.
func wasFrozen(ws *v1beta1.Workspace) bool {
	planned := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionPlanned)
	return planned != nil && planned.Reason == v1beta1.ReasonFrozen && planned.ObservedGeneration == ws.Generation
}

// specHash returns the hash of the fields of KAITO's API.
func specHash(ws *v1beta1.Workspace) (string, error) {
	text, err := json.Marshal(struct {
		Resource  v1beta1.ResourceSpec   `json:"resource"`
		Inference *v1beta1.InferenceSpec `json:"inference,omitempty"`
		Tuning    *v1beta1.TuningSpec    `json:"tuning,omitempty"`
	}{ws.Resource, ws.Inference, ws.Tuning})
	if err != nil {
		return "", fmt.Errorf("encoding the spec of workspace %s/%s: %w", ws.Namespace, ws.Name, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}
