// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/s2"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Revision is what a ControllerRevision pins: the accepted plan and what was rendered from it. A new
// version of Modelberth, of a preset or of a price changes neither.
type Revision struct {
	// Plan that was accepted.
	Plan planner.Plan `json:"plan"`
	Rendered
	// Inputs that it was made from; nil where an earlier version pinned it.
	Inputs *Inputs `json:"inputs,omitempty"`
	// Passing says that the plan was made while offers were left alone or money was short: another one may
	// be better by the time that something is bought.
	Passing bool `json:"passing,omitempty"`
	// NodeClass to buy with; nil means the installation's.
	NodeClass *v1beta1.NodeClassReference `json:"nodeClass,omitempty"`
	// LeftNodes are not used again for a while.
	LeftNodes []LeftNode `json:"leftNodes,omitempty"`
	// NodeLabels that the machines carry for the user.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
}

// LeftNode is a node that was planned onto and did not do.
type LeftNode struct {
	Name   string      `json:"name"`
	Reason string      `json:"reason"`
	Until  metav1.Time `json:"until"`
}

// Inputs are what a revision is made from. Only a change of them makes a new plan.
type Inputs struct {
	Resource    v1beta1.ResourceSpec   `json:"resource"`
	Inference   *v1beta1.InferenceSpec `json:"inference,omitempty"`
	Annotations map[string]string      `json:"annotations,omitempty"`
	// Config is the text of the user's ConfigMap.
	Config string `json:"config,omitempty"`
}

// ShapingAnnotations are the annotations of a Workspace that shape the plan or the pods.
func ShapingAnnotations() []string {
	return []string{
		v1beta1.AnnotationNodeClassName,
		v1beta1.AnnotationNodeImageFamily,
		v1beta1.AnnotationPerformanceMode,
		v1beta1.AnnotationRuntime,
		v1beta1.AnnotationUseLocalWeights,
	}
}

// Object is one that the API server knows.
type Object interface {
	metav1.Object
	runtime.Object
}

// packedFrom is how many bytes of JSON are worth to be packed. What is packed begins with their number, which from
// here on is no beginning of JSON.
const packedFrom = 128

// Pack is the transform of a cache of ControllerRevisions: what they pin is most of them, is seldom read, and takes a
// third of its room when it is packed. Decode reads it as well.
func Pack(object any) (any, error) {
	pinned, ok := object.(*appsv1.ControllerRevision)
	if !ok {
		return object, nil
	}
	pinned.ManagedFields = nil
	if raw := pinned.Data.Raw; len(raw) >= packedFrom && raw[0] == '{' {
		pinned.Data.Raw = bytes.Clone(s2.EncodeBetter(nil, raw)) // as long as it is, not as it might have become
	}
	return pinned, nil
}

// Decode reads what a ControllerRevision pins.
func Decode(object *appsv1.ControllerRevision) (Revision, error) {
	raw, out := object.Data.Raw, Revision{}
	var err error
	if len(raw) > 0 && raw[0] != '{' {
		raw, err = s2.Decode(nil, raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return Revision{}, fmt.Errorf("decoding ControllerRevision %s/%s: %w", object.Namespace, object.Name, err)
	}
	return out, nil
}

// Network is where the Workspace's pods are reached and by whom, and what they reach, its endpoint first. It follows
// the installation's settings of today, for pods that run as well: nothing of it is pinned.
// The peers of pods that still run from another revision stay theirs; nil is none.
func (r *Revision) Network(ws *v1beta1.Workspace, settings workload.Settings, runs *Revision) []Object {
	in := workload.Input{Workspace: ws, Plan: r.Plan, Engine: engine.Command{KVEventsPort: r.KVEventsPort}, Settings: settings}
	for _, each := range []*Revision{r, runs} {
		if each == nil || each.Worker == nil {
			continue
		}
		// Fewer labels select more pods: those of an earlier version have one less.
		if peers := workload.PeerSelector(ws, each.Worker.Labels); in.Peers == nil || len(peers) < len(in.Peers) {
			in.Peers = peers
		}
	}
	around := []Object{workload.Service(in)}
	if r.Plan.Nodes > 1 {
		around = append(around, workload.HeadlessService(ws))
	}
	switch {
	case ws.Inference != nil && ws.Inference.Template == nil:
		around = append(around, workload.NetworkPolicy(in))
	case r.Plan.Nodes > 1:
		around = append(around, workload.DisruptionBudget(ws))
	}
	return around
}

// ToleratesDedication reports whether the pods may run on machines with the taint of their Workspace.
func (r *Revision) ToleratesDedication() bool {
	return workload.ToleratesDedication(&r.Template.Spec) && (r.Worker == nil || workload.ToleratesDedication(&r.Worker.Spec))
}

// Pods are the sets that run the Workspace's pods, the one that serves first. name is that of the
// ControllerRevision, group what is remembered of a group.
func (r *Revision) Pods(ws *v1beta1.Workspace, name string, group workload.Group) []Object {
	if r.Worker == nil {
		return []Object{workload.StatefulSet(ws, int32(r.Plan.Nodes), r.Template, name)}
	}
	var sets []Object
	members := workload.Members{Nodes: r.Plan.Nodes, Leader: r.Template, Worker: *r.Worker}
	for _, set := range workload.GroupSets(ws, members, name, group) {
		sets = append(sets, set)
	}
	return sets
}
