// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Snapshot has the objects and the version of a cluster at one time.
type Snapshot struct {
	// Version is the version of the API server, such as v1.35.4.
	Version string `json:"version"`
	// Now is the time of the API server's answer, by its clock.
	Now time.Time `json:"now"`
	// Objects are all objects read, of all kinds.
	Objects []unstructured.Unstructured `json:"objects,omitempty"`
	// Unread has the reason why a kind could not be read, such as a missing right, by kind.
	Unread map[string]string `json:"unread,omitempty"`
	// Settings are those of the controllers that read them from a ConfigMap. Only support bundles have them.
	Settings []Settings `json:"settings,omitempty"`
}

// Settings are the values that a controller uses from a ConfigMap.
type Settings struct {
	// ConfigMap is its namespace and name.
	ConfigMap string `json:"configMap"`
	// Values have no values from the ConfigMap but valid ones of settings.
	Values map[string]string `json:"values,omitempty"`
	// Problem explains why they could not be read; empty if they were.
	Problem string `json:"problem,omitempty"`
}

// examination collects findings.
type examination struct {
	snapshot *Snapshot
	choice   Choice
	findings []Finding
}

func newExamination(s *Snapshot) *examination { return &examination{snapshot: s, choice: s.Choice()} }

func (e *examination) fail(id, object, evidence, fix string) {
	e.findings = append(e.findings, Finding{ID: id, Severity: Error, Object: object, Evidence: evidence, Fix: fix})
}

func (e *examination) warn(id, object, evidence, fix string) {
	e.findings = append(e.findings, Finding{ID: id, Severity: Warning, Object: object, Evidence: evidence, Fix: fix})
}

// of returns the objects of a kind.
func (s *Snapshot) of(kind string) []unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(s.Objects), func(o unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// find returns an object by kind, namespace and name, or nil.
func (s *Snapshot) find(kind, namespace, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(s.Objects, func(o unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetNamespace() == namespace && o.GetName() == name
	})
	if i < 0 {
		return nil
	}
	return &s.Objects[i]
}

// isRead reports whether the snapshot has all objects of a kind.
func (s *Snapshot) isRead(kind string) bool { return s.Unread[kind] == "" }

// typed returns the objects of a kind as a Go type. It leaves out objects that do not convert.
func typed[T any](s *Snapshot, kind string) []T {
	var out []T
	for _, object := range s.of(kind) {
		var each T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &each); err == nil {
			out = append(out, each)
		}
	}
	return out
}

// named returns the name of an object in findings.
func named(kind, namespace, name string) string {
	if namespace == "" {
		return kind + "/" + name
	}
	return kind + "/" + namespace + "/" + name
}

// called returns the name of an object for findings.
func called(o *unstructured.Unstructured) string {
	return named(o.GetKind(), o.GetNamespace(), o.GetName())
}

// condition returns the status, reason and message of a condition; empty if there is no such condition.
func condition(o *unstructured.Unstructured, kind string) (status, reason, message string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, each := range list {
		fields, isMap := each.(map[string]any)
		if isMap && fields["type"] == kind {
			status, _ = fields["status"].(string)
			reason, _ = fields["reason"].(string)
			message, _ = fields["message"].(string)
			return status, reason, message
		}
	}
	return "", "", ""
}
