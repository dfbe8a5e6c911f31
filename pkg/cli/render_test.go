// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/workload"
)

const ownTemplate = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: own, namespace: team-a}
resource: {instanceType: Standard_A24_1}
inference: {template: {spec: {containers: [{name: server, image: "registry.example/server:1"}]}}}
`

func TestRenderGolden(t *testing.T) {
	tests := []struct {
		name  string
		stdin string
		args  []string
	}{
		{"render-file", "", []string{"-f", "testdata/manifests/new.yaml", "--cloud", "azure", "--agent-image", "registry.example/agent:1"}},
		{"render-template", ownTemplate, []string{"-f", "-"}},
		{"render-json", ownTemplate, []string{"-f", "-", "-o", "json"}},
		{"render-name", "", []string{"chat"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := (&cluster{objects: past(t)}).run(t, session{stdin: test.stdin}, append([]string{"render"}, test.args...)...)
			if got.Code != 0 {
				t.Errorf("%+v", got)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
}

// After a switch of machines, the pods select the new ones by their attempt. The StatefulSet records it.
func TestRenderAfterAMove(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat"}}
	workload.PinToAttempt(set, 7)
	got := (&cluster{objects: append(past(t), set)}).run(t, session{}, "render", "chat")
	if want := v1beta1.LabelMachineAttempt + `: "7"`; got.Code != 0 || !strings.Contains(got.Out, want) {
		t.Errorf("no %s in %+v", want, got)
	}
}

func TestRenderErrors(t *testing.T) {
	long := strings.Replace(ownTemplate, "name: own", "name: "+strings.Repeat("a", 60), 1)
	tests := []struct {
		reason, stdin, args, want string
		code                      int
	}{
		{"nothing", "", "", "give either a manifest with -f or the name of a Workspace in the cluster", 2},
		{"both", "", "chat -f x.yaml", "give either a manifest with -f or the name of a Workspace in the cluster", 2},
		{"a format that there is not", "", "chat -o table", `--output: "table" is not supported: use yaml or json`, 2},
		{"a flag of manifests", "", "chat --agent-image x", "--agent-image works only with -f: without -f, the command prints what the controller rendered", 2},
		{"an absent file", "", "-f absent.yaml", `-f: there is no file "absent.yaml"`, 2},
		{"no plan yet", "", "planless", "Workspace team-a/planless has no accepted plan yet: kubectl berth status planless shows why", 5},
		{
			"a name that no Service can have", long, "-f -",
			`standard input: metadata.name "` + strings.Repeat("a", 60) + `" has 60 characters, but at most 52 are allowed, ` +
				"because the StatefulSet labels its pods with its name and 11 more characters: create the Workspace again under a shorter name", 2,
		},
	}
	planless := workspace()
	planless.Name, planless.UID = "planless", "uid-2"
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := &cluster{objects: []client.Object{workspace(), planless}}
			got := c.run(t, session{stdin: test.stdin}, append([]string{"render"}, strings.Fields(test.args)...)...)
			if diff := cmp.Diff(ran{Err: "kubectl berth render: " + test.want + "\n", Code: test.code}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
