// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
)

// controllerWith returns a Deployment of the controller with flags.
func controllerWith(name string, args ...string) *appsv1.Deployment {
	out := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "modelberth-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": "modelberth"},
	}}
	out.Spec.Template.Spec.Containers = []corev1.Container{{Name: "controller", Args: append([]string{"--agent-image=agent"}, args...)}}
	return out
}

// lookalike returns a tenant's Deployment that looks like the controller. Its settings are useless.
func lookalike() *appsv1.Deployment {
	out := controllerWith("modelberth", "--cloud=no-such-cloud")
	out.Namespace = "team-a"
	return out
}

// bound returns the binding of the chart for the controller's ServiceAccount.
func bound() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "modelberth", Labels: map[string]string{"app.kubernetes.io/name": "modelberth"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "modelberth"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "modelberth-system", Name: "default"}},
	}
}

// unreadable returns a revision from a later version.
func unreadable(t *testing.T) client.Object {
	out := revision(t, 2, 1, nil)
	out.Data.Raw = []byte(`{"plan":{"nodes":"two"}}`)
	return out
}

// bought returns a revision that pins a changed plan with a price.
func bought(t *testing.T, price float64, in *render.Inputs, change func(*planner.Plan)) client.Object {
	t.Helper()
	out := revision(t, 2, price, in)
	pinned, err := render.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	pinned.Plan.CapacityType = v1beta1.CapacityOnDemand
	if change != nil {
		change(&pinned.Plan)
	}
	if out.Data.Raw, err = json.Marshal(pinned); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPreflightUpgradeGolden(t *testing.T) {
	digit := workspace(func(ws *v1beta1.Workspace) { ws.Name, ws.UID, ws.Status.Plan = "1-chat", "uid-2", nil })
	unknown := workspace(func(ws *v1beta1.Workspace) { ws.Inference.Preset.Name = "unknown-chat" })
	tests := []struct {
		name    string
		objects []client.Object
		args    []string
		code    int
	}{
		{"preflight-upgrade", []client.Object{
			workspace(), digit, bought(t, 1.5, spec(4, ""), nil), controllerWith("modelberth", "--cloud=azure", "--region=eastus"),
		}, nil, 1},
		{"preflight-upgrade-json", []client.Object{
			workspace(), digit, bought(t, 1.5, spec(4, ""), nil), controllerWith("modelberth", "--cloud=azure", "--region=westeurope"),
		}, []string{"-o", "json"}, 1},
		{"preflight-upgrade-none", []client.Object{workspace(), controllerWith("modelberth")}, nil, 0},
		{"preflight-upgrade-unreadable", []client.Object{workspace(), unreadable(t), controllerWith("modelberth")}, nil, 1},
		{"preflight-upgrade-no-controller", []client.Object{unknown, bought(t, 1, nil, nil)}, []string{"--offline"}, 0},
		{"preflight-upgrade-ceiling", []client.Object{
			workspace(), bought(t, 1.5, nil, nil), controllerWith("modelberth", "--settings-config-map=modelberth-system/settings"),
			&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "modelberth-system", Name: "settings"},
				Data:       map[string]string{"spending-per-workspace": "0.5", "spending-unlimited": "false"},
			},
		}, nil, 0},
		{"preflight-upgrade-nodes", []client.Object{
			workspace(), bought(t, 0, nil, func(plan *planner.Plan) { plan.InstanceType, plan.NodeNames = "", []string{"node-1"} }),
			controllerWith("modelberth"),
		}, nil, 0},
		{"preflight-upgrade-several", []client.Object{workspace(), controllerWith("b"), controllerWith("a")}, nil, 2},
		{"preflight-upgrade-lookalike", []client.Object{
			workspace(), bought(t, 1, nil, nil), bound(), lookalike(), controllerWith("modelberth", "--cloud=azure", "--region=eastus"),
		}, nil, 0},
		{"preflight-upgrade-lookalike-named", []client.Object{
			workspace(), bought(t, 1, nil, nil), bound(), lookalike(), controllerWith("modelberth", "--cloud=azure", "--region=eastus"),
		}, []string{"--controller=team-a/modelberth"}, 2},
		{"preflight-upgrade-unknown-controller", []client.Object{workspace(), controllerWith("b")}, []string{"--controller=x/y"}, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := (&cluster{objects: test.objects}).run(t, session{}, append([]string{"preflight-upgrade"}, test.args...)...)
			if got.Code != test.code {
				t.Errorf("exit code %d, want %d", got.Code, test.code)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
}

func TestPreflightUpgradeCannotCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chart.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	denied := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if list.GetObjectKind().GroupVersionKind().Kind == "WorkspaceList" {
			return forbidden("workspaces")
		}
		return c.List(ctx, list, options...)
	}}
	for _, test := range []struct {
		reason string
		faults interceptor.Funcs
		args   []string
		want   string
	}{
		{
			"the user may not read Workspaces", denied, nil,
			"kubectl berth preflight-upgrade: Workspace: permission denied: workspaces is forbidden: user \"mia\" cannot do that\n",
		},
		{
			"the file is no chart",
			interceptor.Funcs{},
			[]string{"-f", file},
			"kubectl berth preflight-upgrade: -f " + file + ": there is no CustomResourceDefinition among the objects; " +
				"render the whole chart with helm template\n",
		},
		{
			"the file does not exist",
			interceptor.Funcs{},
			[]string{"-f", file + "x"},
			"kubectl berth preflight-upgrade: -f: there is no file \"" + file + "x\"\n",
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := (&cluster{objects: []client.Object{workspace()}, faults: test.faults}).run(t, session{}, append([]string{"preflight-upgrade"}, test.args...)...)
			if got.Code != 2 || got.Err != test.want {
				t.Errorf("exit code %d, want 2: %s", got.Code, got.Err)
			}
		})
	}
}
