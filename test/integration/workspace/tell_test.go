// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// saying is the status of a Workspace, for the messages of failed stories.
func saying(ws *v1beta1.Workspace) string {
	out := &strings.Builder{}
	fmt.Fprintf(out, "Workspace %s/%s", ws.Namespace, ws.Name)
	for _, c := range ws.Status.Conditions {
		fmt.Fprintf(out, "\n  %s=%s(%s) since %s: %s", c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC().Format(time.TimeOnly), c.Message)
	}
	for _, a := range ws.Status.Attempts {
		fmt.Fprintf(out, "\n  attempt %d %s %v from %s %s: %s",
			a.Number, a.InstanceType, a.NodeClaims, a.StartTime.UTC().Format(time.TimeOnly), a.Reason, a.Message)
	}
	return out.String()
}

// tell logs the status and the objects of a Workspace whose story failed.
func (w *world) tell(t *testing.T, key client.ObjectKey) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws := &v1beta1.Workspace{}
	if err := w.client.Get(ctx, key, ws); err != nil {
		t.Logf("Workspace %s: %v", key, err)
		return
	}
	out := &strings.Builder{}
	out.WriteString(saying(ws))
	ours := client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)}
	inNamespace := client.InNamespace(key.Namespace)
	for _, around := range []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{&karpv1.NodeClaimList{}, []client.ListOption{ours}},
		{&corev1.NodeList{}, []client.ListOption{ours}},
		{&appsv1.StatefulSetList{}, []client.ListOption{inNamespace, client.MatchingFields{"metadata.name": key.Name}}},
		{&corev1.PodList{}, []client.ListOption{inNamespace, client.MatchingLabels{v1beta1.LabelWorkspace: key.Name}}},
	} {
		err := w.client.List(ctx, around.list, around.options...)
		if err == nil {
			err = meta.EachListItem(around.list, func(item runtime.Object) error { return describe(out, item) })
		}
		if err != nil {
			fmt.Fprintf(out, "\n  %T: %v", around.list, err)
		}
	}
	t.Log(out)
}

// describe writes an object's age and status.
func describe(out io.Writer, object runtime.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	item := unstructured.Unstructured{Object: content}
	status, err := json.Marshal(content["status"])
	if err != nil {
		return err
	}
	deleted := ""
	if at := item.GetDeletionTimestamp(); at != nil {
		deleted = ", deleted " + at.UTC().Format(time.TimeOnly)
	}
	fmt.Fprintf(out, "\n  %T %s, created %s%s: %s",
		object, item.GetName(), item.GetCreationTimestamp().UTC().Format(time.TimeOnly), deleted, status)
	return nil
}
