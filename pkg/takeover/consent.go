// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeover decides about Workspaces of KAITO's controller: the user's consent, KAITO's objects with their
// price, and the obstacles.
//
// It takes objects as they were read. It must not know how the controller plans, buys or serves.
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
	// Unadopted: nobody has agreed, or the consent is for another Workspace. A copied manifest carries one along.
	Unadopted State = ""
	// Frozen: everything runs on as KAITO's controller left it.
	Frozen State = "Frozen"
	// Edited: the spec has changed since, so the Workspace gets machines and pods of this controller.
	Edited State = "Edited"
	// Replaced: pods of this controller have taken the place of KAITO's after an edit. Only a report has this state.
	Replaced State = "Replaced"
)

// Consent is a user's agreement to have one Workspace taken over as it is.
type Consent struct {
	// UID of the Workspace.
	UID types.UID `json:"uid"`
	// Generation and Spec are the version of the spec. The hash alone would change with the fields of a later
	// version of this program.
	Generation int64  `json:"generation"`
	Spec       string `json:"spec"`
	// Pods is their number. An edit overwrites all other records of it.
	Pods int `json:"pods,omitempty"`
}

// NewConsent returns the consent for a Workspace as it is, with this many pods.
func NewConsent(ws *v1beta1.Workspace, pods int) (*Consent, error) {
	hash, err := specHash(ws)
	if err != nil {
		return nil, err
	}
	return &Consent{UID: ws.UID, Generation: ws.Generation, Spec: hash, Pods: pods}, nil
}

// mostPods is more than KAITO's controller runs for a Workspace. Users of the namespace can write any number.
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

// WantedPods is the number of pods that KAITO's controller creates for a Workspace: one on each machine.
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

// wasFrozen reports whether a pass over this generation found it frozen. That pass may have been an earlier version's, for
// which the hash of the same spec was another one.
func wasFrozen(ws *v1beta1.Workspace) bool {
	planned := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionPlanned)
	return planned != nil && planned.Reason == v1beta1.ReasonFrozen && planned.ObservedGeneration == ws.Generation
}

// specHash is the hash of the fields of KAITO's API.
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
