// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
)

// spec returns the inputs of a revision.
func spec(concurrency int32, config string) *render.Inputs {
	return &render.Inputs{
		Inference: &v1beta1.InferenceSpec{
			Preset: &v1beta1.PresetSpec{Name: "small-chat"}, Config: "tuned", Objectives: &v1beta1.ObjectivesSpec{Concurrency: new(concurrency)},
		},
		Config: config,
	}
}

// past returns a Workspace with three revisions: the first, an edit, and a change after refused machines. Its ConfigMap
// has the text of the last.
func past(t *testing.T, change ...func(*v1beta1.Workspace)) []client.Object {
	t.Helper()
	annotated := spec(8, "vllm: {}")
	annotated.Annotations = map[string]string{v1beta1.AnnotationNodeClassName: "mine"}
	ws := workspace(func(ws *v1beta1.Workspace) {
		ws.Inference = annotated.Inference.DeepCopy()
		ws.Annotations = map[string]string{v1beta1.AnnotationNodeClassName: "mine", "example.com/note": "kept"}
		ws.Status.Plan.Revision = "chat-3"
	})
	for _, c := range change {
		c(ws)
	}
	return []client.Object{
		ws, revision(t, 1, 1.5, spec(4, "vllm: {}")), revision(t, 2, 3, annotated), revision(t, 3, 4.25, annotated),
		tuned(map[string]string{v1beta1.InferenceConfigKey: "vllm: {}"}),
	}
}

// tuned returns the ConfigMap of the revisions.
func tuned(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "tuned"}, Data: data}
}

func TestHistoryGolden(t *testing.T) {
	foreign := revision(t, 9, 1, nil)
	foreign.Name, foreign.OwnerReferences = "chat-9", nil
	tests := []struct {
		name    string
		objects []client.Object
		args    []string
	}{
		{"history", append(past(t), foreign), nil},
		{"history-json", past(t), []string{"-o", "json"}},
		{"history-none", []client.Object{workspace()}, nil},
		{"history-old", []client.Object{workspace(), revision(t, 1, 1.5, nil), revision(t, 2, 3, spec(4, ""))}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := (&cluster{objects: test.objects}).run(t, session{}, append([]string{"history", "chat"}, test.args...)...)
			if got.Code != 0 {
				t.Errorf("%+v", got)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
}

// stored has the objects that a rollback may change.
type stored struct {
	Inference   *v1beta1.InferenceSpec
	Annotations map[string]string
	Config      map[string]string
}

func read(t *testing.T, objects client.Client) stored {
	t.Helper()
	ws, config := &v1beta1.Workspace{}, &corev1.ConfigMap{}
	if err := objects.Get(t.Context(), types.NamespacedName{Namespace: "team-a", Name: "chat"}, ws); err != nil {
		t.Fatal(err)
	}
	err := objects.Get(t.Context(), types.NamespacedName{Namespace: "team-a", Name: "tuned"}, config)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return stored{ws.Inference, ws.Annotations, config.Data}
}

func TestRollback(t *testing.T) {
	config := func(text string) func([]client.Object) []client.Object {
		return func(objects []client.Object) []client.Object {
			return append(objects[:len(objects)-1], tuned(map[string]string{v1beta1.InferenceConfigKey: text, "other": "kept"}))
		}
	}
	without := func(objects []client.Object) []client.Object { return objects[:len(objects)-1] }
	note := map[string]string{"example.com/note": "kept"}
	was := spec(4, "").Inference
	both := map[string]string{v1beta1.AnnotationNodeClassName: "mine", "example.com/note": "kept"}
	text := func(value string) map[string]string { return map[string]string{v1beta1.InferenceConfigKey: value} }
	edited := func(ws *v1beta1.Workspace) { ws.Inference.Objectives.Concurrency = new(int32(500)) }
	// No revision has that annotation yet.
	hurried := func(ws *v1beta1.Workspace) { ws.Annotations[v1beta1.AnnotationPerformanceMode] = "throughput" }
	failed := func(ws *v1beta1.Workspace) {
		edited(ws)
		ws.Status.LatestReadyRevision = "chat-1"
	}
	tests := []struct {
		name   string
		edit   func(*v1beta1.Workspace)
		change func([]client.Object) []client.Object
		args   []string
		want   stored
	}{
		{name: "rollback", want: stored{was, note, text("vllm: {}")}},
		{name: "rollback-dry-run", args: []string{"--dry-run"}, want: stored{spec(8, "").Inference, both, text("vllm: {}")}},
		{name: "rollback-to", args: []string{"--to-revision", "1"}, want: stored{was, note, text("vllm: {}")}},
		{name: "rollback-of-what-has-no-plan", edit: edited, want: stored{spec(8, "").Inference, both, text("vllm: {}")}},
		{name: "rollback-to-what-answered", edit: failed, want: stored{was, note, text("vllm: {}")}},
		{
			name: "rollback-of-an-annotation", edit: hurried,
			want: stored{spec(8, "").Inference, both, text("vllm: {}")},
		},
		{
			name: "rollback-config-left", change: config("vllm: {new: true}"), args: []string{"--to-revision", "1"},
			want: stored{was, note, map[string]string{v1beta1.InferenceConfigKey: "vllm: {new: true}", "other": "kept"}},
		},
		{
			name: "rollback-config", change: config("vllm: {new: true}"), args: []string{"--with-config"},
			want: stored{spec(8, "").Inference, both, map[string]string{v1beta1.InferenceConfigKey: "vllm: {}", "other": "kept"}},
		},
		{
			name: "rollback-config-gone", change: without, args: []string{"--to-revision", "1", "--with-config"},
			want: stored{was, note, text("vllm: {}")},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			objects := past(t, func(ws *v1beta1.Workspace) {
				if test.edit != nil {
					test.edit(ws)
				}
			})
			if test.change != nil {
				objects = test.change(objects)
			}
			c := &cluster{objects: objects}
			store := c.client(t)
			got := c.run(t, session{objects: store}, append([]string{"rollback", "chat"}, test.args...)...)
			if got.Code != 0 {
				t.Errorf("%+v", got)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
			if diff := cmp.Diff(test.want, read(t, store)); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRollbackErrors(t *testing.T) {
	refuse := func(err error) interceptor.Funcs {
		return interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return err
		}}
	}
	back := func(ws *v1beta1.Workspace) {
		ws.Inference = spec(4, "").Inference
		delete(ws.Annotations, v1beta1.AnnotationNodeClassName)
	}
	tests := []struct {
		reason  string
		objects []client.Object
		faults  interceptor.Funcs
		args    string
		want    string
		code    int
	}{
		{"no revision", []client.Object{workspace()}, interceptor.Funcs{}, "", "Workspace team-a/chat has no accepted revision to return to: kubectl berth status chat shows why", 2},
		{"an unknown revision", past(t), interceptor.Funcs{}, "--to-revision 7", "--to-revision: Workspace team-a/chat has no revision 7: use 1, 2 or 3", 2},
		{"no number", past(t), interceptor.Funcs{}, "--to-revision 0", "--to-revision is 0: use a number from kubectl berth history chat", 2},
		{
			"a revision without inputs",
			[]client.Object{workspace(), revision(t, 1, 1, nil), revision(t, 2, 1, spec(4, ""))},
			interceptor.Funcs{},
			"--to-revision 1",
			"revision 1 of Workspace team-a/chat comes from a version that did not record the spec: " +
				"edit the Workspace by hand; kubectl berth history chat shows the revision's plan", 2,
		},
		{
			"nothing before",
			[]client.Object{workspace(), revision(t, 2, 1, nil)},
			interceptor.Funcs{},
			"",
			"Workspace team-a/chat has no earlier revision with another spec to restore: see kubectl berth history chat", 2,
		},
		{
			"it is there already", past(t, back),
			interceptor.Funcs{},
			"--to-revision 1",
			"Workspace team-a/chat already has the spec of revision 1: nothing is written", 2,
		},
		{
			"somebody else was faster", past(t), refuse(apierrors.NewConflict(schema.GroupResource{}, "chat", nil)), "",
			"Workspace team-a/chat was changed by another client at the same time: try again", 5,
		},
		{
			"not allowed", past(t), refuse(forbidden("workspaces")), "",
			`Workspace team-a/chat: permission denied: workspaces is forbidden: user "mia" cannot do that`, 5,
		},
		{
			"immutable", past(t), refuse(apierrors.NewInvalid(schema.GroupKind{Kind: "Workspace"}, "chat", nil)), "",
			`Workspace team-a/chat: the API server rejects the request: Workspace "chat" is invalid`, 2,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := &cluster{objects: test.objects, faults: test.faults}
			got := c.run(t, session{}, append([]string{"rollback", "chat"}, strings.Fields(test.args)...)...)
			if diff := cmp.Diff(ran{Err: "kubectl berth rollback: " + test.want + "\n", Code: test.code}, ran{Err: got.Err, Code: got.Code}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnreadableRevision(t *testing.T) {
	broken := revision(t, 1, 1, nil)
	broken.Data.Raw = []byte(`{"plan":3}`)
	got := (&cluster{objects: []client.Object{workspace(), broken}}).run(t, session{}, "history", "chat")
	if got.Code != 5 || !strings.Contains(got.Err, "decoding ControllerRevision team-a/chat-1: ") ||
		!strings.Contains(got.Err, "a newer version may have written it") {
		t.Errorf("%+v", got)
	}
}
