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

// Revision is the content of a ControllerRevision: the accepted plan and the rendered pods. Neither changes with a new
// release of Modelberth, a changed preset or a changed price.
type Revision struct {
	// Plan is the accepted plan.
	Plan planner.Plan `json:"plan"`
	Rendered
	// Inputs are the inputs of the plan; nil if an earlier version pinned the plan.
	Inputs *Inputs `json:"inputs,omitempty"`
	// Provisional is set if the plan was made during a cooldown or under a full ceiling. At the time of the purchase,
	// another plan may be better.
	Provisional bool `json:"passing,omitempty"`
	// NodeClass is for purchases; nil means the installation's.
	NodeClass *v1beta1.NodeClassReference `json:"nodeClass,omitempty"`
	// LeftNodes are nodes that new plans avoid for a while.
	LeftNodes []LeftNode `json:"leftNodes,omitempty"`
	// NodeLabels are the user's labels for the machines.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
}

// LeftNode is a planned node that turned out to be unusable.
type LeftNode struct {
	Name   string      `json:"name"`
	Reason string      `json:"reason"`
	Until  metav1.Time `json:"until"`
}

// Inputs are the inputs of a revision. The controller plans again only if they change.
type Inputs struct {
	Resource    v1beta1.ResourceSpec   `json:"resource"`
	Inference   *v1beta1.InferenceSpec `json:"inference,omitempty"`
	Annotations map[string]string      `json:"annotations,omitempty"`
	// Config is the text of the user's ConfigMap.
	Config string `json:"config,omitempty"`
}

// ShapingAnnotations returns the annotations of a Workspace that affect the plan or the pods.
func ShapingAnnotations() []string {
	return []string{
		v1beta1.AnnotationNodeClassName,
		v1beta1.AnnotationNodeImageFamily,
		v1beta1.AnnotationPerformanceMode,
		v1beta1.AnnotationRuntime,
		v1beta1.AnnotationUseLocalWeights,
	}
}

// Object is an object of the API server.
type Object interface {
	metav1.Object
	runtime.Object
}

// packedFrom is the smallest size in bytes of JSON to pack. Packed data starts with its length. From this size on, the
// length's first byte is never {.
const packedFrom = 128

// Pack is the transform of a cache of ControllerRevisions. It compresses their data, which is large and seldom read, to
// a third of the memory. Decode reads packed and plain data.
func Pack(object any) (any, error) {
	pinned, ok := object.(*appsv1.ControllerRevision)
	if !ok {
		return object, nil
	}
	pinned.ManagedFields = nil
	if raw := pinned.Data.Raw; len(raw) >= packedFrom && raw[0] == '{' {
		pinned.Data.Raw = bytes.Clone(s2.EncodeBetter(nil, raw)) // a clone has no spare capacity
	}
	return pinned, nil
}

// Decode reads the data of a ControllerRevision.
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

// Network returns the objects for the Workspace's network: first the endpoint, then the allowed traffic from and to its
// pods. No revision pins them: they follow the installation's present settings, even for running pods. runs is another
// revision with running pods, which keep their peers; nil means none.
func (r *Revision) Network(ws *v1beta1.Workspace, settings workload.Settings, runs *Revision) []Object {
	in := workload.Input{Workspace: ws, Plan: r.Plan, Engine: engine.Command{KVEventsPort: r.KVEventsPort}, Settings: settings}
	for _, each := range []*Revision{r, runs} {
		if each == nil || each.Worker == nil {
			continue
		}
		// Fewer labels select more pods. Pods of an earlier version have one label less.
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

// Pods returns the StatefulSets of the Workspace's pods, the serving one first. name is the ControllerRevision's name,
// and group the recorded state of a group.
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
