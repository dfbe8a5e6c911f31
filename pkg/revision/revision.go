// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revision stores accepted plans. Each one is an immutable ControllerRevision of its Workspace. The package
// lists, decodes, pins and trims them.
//
// It decides the names of revisions, which revision belongs to a spec, and how many a Workspace keeps. It must not
// depend on how a plan is made, or on the state of its machines and pods.
package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/usd"
)

// shortHashLength is the length of the hash in a revision's name. Comparisons use the whole hash.
const shortHashLength = 10

// Revision is the content of a ControllerRevision.
type Revision struct {
	// Name is the name of the ControllerRevision; empty until it is pinned.
	Name string `json:"-"`
	// Unverified explains why this revision must not get machines or pods now; empty if it may.
	Unverified string `json:"-"`
	render.Revision
}

// IsOnNodes reports whether the plan uses existing nodes and buys no machine.
func (r *Revision) IsOnNodes() bool { return len(r.Plan.NodeNames) > 0 }

// IsGroup reports whether several machines serve the model together; false for nil.
func (r *Revision) IsGroup() bool { return r != nil && r.Worker != nil }

// Summary returns the plan in one line, with its price if known.
func (r *Revision) Summary() string {
	message := r.Plan.Summary()
	if price := r.Plan.HourlyPrice; price >= 0 {
		message += ", " + usd.PerHour(price)
	}
	if premium := r.Plan.Premium; premium != "" {
		message += ", " + premium
	}
	return strings.Join(append([]string{message}, r.Plan.Warnings...), "; warning: ")
}

// Inputs returns the inputs of a Workspace's revision. config is the text of the Workspace's ConfigMap.
func Inputs(ws *v1beta1.Workspace, config string) render.Inputs {
	annotations := map[string]string{}
	for _, key := range render.ShapingAnnotations() {
		if value, ok := ws.Annotations[key]; ok {
			annotations[key] = value
		}
	}
	return render.Inputs{Resource: ws.Resource, Inference: ws.Inference, Annotations: annotations, Config: config}
}

// Hash returns the hash of inputs in hex.
func Hash(in render.Inputs) (string, error) { return hashOf(in) }

// ShortHash returns the beginning of a hash, for names.
func ShortHash(hash string) string { return hash[:min(len(hash), shortHashLength)] }

// ContextHash returns the hash of the inputs that a Workspace's generation does not cover, in hex.
func ContextHash(in render.Inputs) (string, error) {
	return hashOf(map[string]any{"annotations": in.Annotations, "config": in.Config})
}

// hashOf hashes a value's JSON. encoding/json sorts maps, so equal values have equal hashes.
func hashOf(value any) (string, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("hashing the spec: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), nil
}

// Name returns the name of a revision. The name of a replacement from the same inputs includes its number.
func Name(ws *v1beta1.Workspace, hash string, number int64, isFallback bool) string {
	name := ws.Name + "-" + ShortHash(hash)
	if isFallback {
		name += fmt.Sprintf("-%d", number)
	}
	return name
}

// HasSameInputs reports whether two revisions were made from the same inputs.
func HasSameInputs(a, b *appsv1.ControllerRevision) bool {
	return a.Annotations[v1beta1.AnnotationHash] == b.Annotations[v1beta1.AnnotationHash]
}

// OnlyLowersPrice reports whether inputs differ from the former ones only in a lower maxHourlyPrice. Such a change
// affects nothing that runs.
func OnlyLowersPrice(in render.Inputs, former *render.Inputs) bool {
	if former == nil {
		return false
	}
	before, after := maxHourlyPrice(*former), maxHourlyPrice(in)
	return after > 0 && (before <= 0 || after < before) &&
		equality.Semantic.DeepEqual(withoutMaxHourlyPrice(in), withoutMaxHourlyPrice(*former))
}

func maxHourlyPrice(in render.Inputs) float64 {
	return request.MaxHourlyPrice(&v1beta1.Workspace{Resource: in.Resource})
}

func withoutMaxHourlyPrice(in render.Inputs) render.Inputs {
	placement := v1beta1.PlacementSpec{}
	if in.Resource.Placement != nil {
		placement = *in.Resource.Placement
	}
	placement.MaxHourlyPrice = ""
	out := in
	out.Resource.Placement = &placement
	return out
}

// compare orders revisions by age.
func compare(a, b appsv1.ControllerRevision) int {
	if a.Revision != b.Revision {
		return int(a.Revision - b.Revision)
	}
	return strings.Compare(a.Name, b.Name)
}
