// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
	"github.com/modelberth/modelberth/test/privileges"
)

// TestPrivileges runs the controller with each back end under an account with exactly the chart's roles for that back end
// and the cost ledger: no request is refused, and no privilege lies idle.
func TestPrivileges(t *testing.T) {
	w := enterAudited(t)
	w.addPlugin(t)
	for _, test := range []struct {
		backEnd string
		// formers are previous back ends of the installation. The last one is nodeclaim: changes to its machine without
		// a watcher are for the controller of this test to find.
		formers []former
		// rare are the privileges of this back end in addition to the common ones.
		rare privileges.Rare
	}{
		{backEnd: options.BackendNodeClaim, formers: []former{options.BackendPods, options.BackendNodePool, options.BackendNodeClaim}},
		{
			backEnd: options.BackendNodePool, formers: []former{options.BackendPods, options.BackendNodeClaim},
			rare: privileges.Rare{"karpenter.sh nodepools get": "when two replicas make the same one"},
		},
		{
			backEnd: options.BackendPods, formers: []former{options.BackendNodePool, options.BackendNodeClaim},
			rare: privileges.Rare{" pods delete": "when the stand-in for the garbage collector is slower to see a lost node"},
		},
		{backEnd: options.BackendExisting, formers: []former{options.BackendPods, options.BackendNodePool, options.BackendNodeClaim}},
	} {
		t.Run(test.backEnd, func(t *testing.T) {
			a := w.install(t, "modelberth-"+test.backEnd, "capacity.backend="+test.backEnd, "cost.enabled=true")
			l := &lifetime{climber: &climber{world: a.world, clock: &stepClock{}}, account: a, backEnd: test.backEnd}
			l.tell(t, test.formers)
			rare := maps.Clone(rarelyUsed())
			maps.Copy(rare, test.rare)
			a.checkPrivileges(t, rare)
		})
	}
}

// rarelyUsed are privileges of every back end that the stories below may not use, with their reasons.
func rarelyUsed() privileges.Rare {
	const taken = "when somebody was first to make one of that name, and the cache does not show it yet"
	const scraped = "when metrics are scraped, which TestScrapesNeedPermission has under the same roles"
	return privileges.Rare{
		"authentication.k8s.io tokenreviews create":        scraped,
		"authorization.k8s.io subjectaccessreviews create": scraped,
		"kaito.sh workspaces/finalizers update":            "no request: the API server asks it of who names a Workspace as an owner, and this one does",
		"kaito.sh inferencesets/finalizers update":         "as for Workspaces",
		"keda.sh scaledobjects list":                       "in clusters with KEDA",
		"keda.sh scaledobjects watch":                      "in clusters with KEDA",
		" pods create":                                     "as a dry run, before pods of KAITO's controller make room",
		" pods patch":                                      "when engines on several machines were held back until they are isolated, which takes a network",
		" configmaps patch":                                "when a part of the cost ledger changes after its creation",
		" services get":                                    taken,
		"networking.k8s.io networkpolicies get":            taken,
		"policy poddisruptionbudgets get":                  taken,
		"apps controllerrevisions get":                     taken,
	}
}

// former is the installation's previous back end.
type former = string

// lifetime is a run of a controller with one back end under an account.
type lifetime struct {
	*climber
	account *account
	backEnd string
}

func (l *lifetime) tell(t *testing.T, formers []former) {
	var handed []*v1beta1.Workspace
	for _, former := range formers {
		handed = append(handed, l.formerly(t, former)...)
	}
	served := l.afterKAITO(t)
	l.begin(t)
	for _, s := range served {
		l.untilCondition(t, s.ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonServedByKAITO)
		s.releases(t)
	}
	l.karpenter.Script(refusedType, sim.NoQuotaEvent) // for the objects from before its start
	for _, ws := range handed {
		l.handedOver(t, ws)
	}
	l.edited(t)
	l.replicated(t)
	l.namesWhatIsMissing(t)
	l.settlesACommit(t)
	l.keepsASet(t)
	if l.backEnd == options.BackendExisting {
		nodeIsLost(t, l.climber)
	} else {
		l.orphaned(t)
	}
	if l.backEnd == options.BackendNodeClaim || l.backEnd == options.BackendNodePool {
		workerEnds(t, l.life)
	}
	l.life.end(t)
}

// begin starts a controller as the chart does.
func (l *lifetime) begin(t *testing.T) {
	t.Helper()
	o := l.options()
	o.CapacityBackend, o.GPUPluginCheck, o.DaemonSetNamespaces = l.backEnd, true, []string{metav1.NamespaceSystem}
	o.LeaderElect, o.LeaderElectionNamespace = true, l.account.namespace
	// A chart sets a longer interval.
	o.Cost = options.Cost{
		Namespace: l.account.namespace, Name: "modelberth-" + l.backEnd + "-cost", Interval: 2 * time.Second, Publish: true,
	}
	l.life = l.beginWith(t, faults.NewRecorder(), l.clock, o)
}

// formerly has Workspaces with machines of a controller with another back end and all rights: one serves, and the
// machine of the other is on its way if Karpenter makes it.
func (l *lifetime) formerly(t *testing.T, with former) []*v1beta1.Workspace {
	t.Helper()
	o := l.options()
	o.CapacityBackend = with
	administrator := *l.world
	administrator.config = l.environment.Config
	life := administrator.beginWith(t, faults.NewRecorder(), l.clock, o)
	serves := plannerForm(l.namespace(t), "kept")
	serves.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{cheap}, NodeSource: v1beta1.NodeSourceProvisioned}
	l.autoscaler.Serve(serves.Namespace, l.group(t, cheap, sim.Scales))
	l.create(t, serves)
	l.untilServing(t, serves)
	if with != options.BackendNodeClaim {
		life.end(t)
		return []*v1beta1.Workspace{serves}
	}
	l.karpenter.Script(refusedType, sim.Hangs)
	awaits := plannerForm(serves.Namespace, "early")
	awaits.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{refusedType}, NodeSource: v1beta1.NodeSourceProvisioned}
	l.create(t, awaits)
	eventually(t, "a claim", func() (bool, string) { return len(l.claims(t, awaits)) == 1, saying(awaits) })
	life.end(t)
	l.makeAgain(t, serves)
	return []*v1beta1.Workspace{awaits, serves}
}

// makeAgain replaces a Workspace's NodeClaim by another one with the same name.
func (l *lifetime) makeAgain(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	former := l.claims(t, ws)[0]
	again := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: former.Name, Labels: former.Labels, Annotations: former.Annotations,
	}, Spec: former.Spec}
	if err := l.client.Delete(t.Context(), &former); err != nil {
		t.Fatal(err)
	}
	l.untilReleased(t, ws)
	if err := l.client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a machine again", func() (bool, string) {
		claims := l.claims(t, ws)
		return len(claims) == 1 && claims[0].Status.NodeName != "", saying(ws)
	})
}

// handedOver takes over a Workspace from another back end: it continues to serve, or is refused, and is then deleted.
func (l *lifetime) handedOver(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if ws.Name == "early" {
		claims := l.claims(t, ws)
		l.patch(t, &claims[0], nil)
		eventually(t, "the refusal", func() (bool, string) {
			l.read(t, ws)
			return ws.Status.Attempts[0].Reason != "", saying(ws)
		})
	} else {
		l.untilServing(t, ws)
	}
	l.vanish(t, ws)
	l.checkNothingLeft(t, ws)
}

// form is a Workspace for two machine types of the back end.
func (l *lifetime) form(t *testing.T, name string) *v1beta1.Workspace {
	t.Helper()
	return l.formIn(t, l.namespace(t), name)
}

func (l *lifetime) formIn(t *testing.T, namespace, name string) *v1beta1.Workspace {
	t.Helper()
	ws := eitherForm(namespace, name)
	switch l.backEnd {
	case options.BackendPods:
		l.autoscaler.Serve(ws.Namespace, l.group(t, cheap, sim.Scales), l.group(t, dear, sim.Scales))
	case options.BackendExisting:
		ws = nodeForm(ws.Namespace, name)
		l.addNode(t, ws, "a")
		l.addNode(t, ws, "b")
	}
	return ws
}

// edited is the story of a Workspace that serves, changes, loses its machine, and is deleted.
func (l *lifetime) edited(t *testing.T) {
	ws := l.form(t, "chat")
	l.create(t, ws)
	l.untilServing(t, ws)
	for seed := range 11 {
		l.patch(t, ws, func() {
			ws.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"seed": v1beta1.EngineArg(strconv.Itoa(seed))}}
		})
		l.untilArgs(t, ws, "--seed "+strconv.Itoa(seed))
	}
	l.untilServing(t, ws)
	l.lose(t, ws)
	l.untilServing(t, ws)
	l.vanish(t, ws)
	l.checkNothingLeft(t, ws)
}

// vanish deletes a Workspace, and waits for its pods: only with back end pods does it stay until they are gone.
func (l *lifetime) vanish(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if err := l.client.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	l.untilGone(t, ws)
	eventually(t, "no pod", func() (bool, string) {
		sets, pods := l.setsAndPods(t, ws)
		return sets+pods == 0, fmt.Sprintf("%d StatefulSets, %d pods", sets, pods)
	})
}

// lose removes the machine of a Workspace, and waits until the controller reacts.
func (l *lifetime) lose(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	lost := ws.Status.WorkerNodes[0]
	if len(l.claims(t, ws)) > 0 {
		l.loseMachine(t, ws)
	} else if err := l.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lost}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another node", func() (bool, string) {
		l.read(t, ws)
		return len(ws.Status.WorkerNodes) == 1 && ws.Status.WorkerNodes[0] != lost, saying(ws)
	})
}

// replicated is the story of two serving pods.
func (l *lifetime) replicated(t *testing.T) {
	ws := l.form(t, "mine")
	tolerations := []corev1.Toleration(nil)
	if ws.Inference.Pod != nil {
		tolerations = ws.Inference.Pod.Tolerations
	}
	ws.Inference = templateForm(ws.Namespace).Inference
	ws.Inference.Template.Spec.Tolerations = tolerations
	ws.Resource.Count, ws.Resource.Placement = new(2), nil
	if l.backEnd != options.BackendExisting {
		ws.Resource.InstanceType = dear
	}
	l.create(t, ws)
	l.untilServing(t, ws)
	l.vanish(t, ws)
}

// namesWhatIsMissing has Workspaces name objects of their namespace.
func (l *lifetime) namesWhatIsMissing(t *testing.T) {
	for name, change := range map[string]func(*v1beta1.InferenceSpec){
		"config": func(spec *v1beta1.InferenceSpec) { spec.Config = "missing" },
		"secret": func(spec *v1beta1.InferenceSpec) { spec.Preset.PresetOptions.ModelAccessSecret = "missing" },
		"claim": func(spec *v1beta1.InferenceSpec) {
			spec.Weights = &v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "missing"}}
		},
	} {
		ws := l.form(t, name)
		change(ws.Inference)
		l.create(t, ws)
		l.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, "")
		l.vanish(t, ws)
	}
}

// keepsASet makes a set create a replica, as its policy requires, and delete it. That buys nothing.
func (l *lifetime) keepsASet(t *testing.T) {
	set := setForm(l.namespace(t), "set", 0)
	set.Spec.Template.Inference.Config = "missing"
	set.Spec.Autoscaling = &v1beta1.AutoscalingSpec{MaxReplicas: new(int32(1))}
	l.createSet(t, set)
	l.untilSet(t, set, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonReplicaBlocked)
	l.removeSet(t, set)
}

// settlesACommit has the pods of a Workspace settle the commit of their weights.
func (l *lifetime) settlesACommit(t *testing.T) {
	commit := strings.Repeat("1a", 20)
	ws := l.form(t, "settles")
	ws.Inference.Preset.Name = "tiny-chat-vllm"
	l.workloads.Script(client.ObjectKeyFromObject(ws), tells(commit))
	defer l.workloads.Heal(client.ObjectKeyFromObject(ws))
	l.create(t, ws)
	l.untilServing(t, ws)
	l.untilKept(t, ws, commit)
	l.vanish(t, ws)
}

// afterKAITO makes Workspaces as KAITO's controller left them.
func (l *lifetime) afterKAITO(t *testing.T) []*served {
	t.Helper()
	deployed, pooled := l.kaitoServes(t), l.kaitoServes(t)
	deployed.withDeployment(t)
	pooled.withPool(t)
	return []*served{deployed, pooled}
}

// orphaned has a Workspace go without its finalizer.
func (l *lifetime) orphaned(t *testing.T) {
	ws := l.form(t, "orphan")
	l.create(t, ws)
	l.untilServing(t, ws)
	l.forceAway(t, ws)
	l.untilReleased(t, ws)
}

// addPlugin makes a device plugin.
func (w *world) addPlugin(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "nvidia-device-plugin"}
	plugin := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "nvidia-device-plugin"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers:  []corev1.Container{{Name: "plugin", Image: "registry.example/nvidia-device-plugin:1"}},
				Tolerations: []corev1.Toleration{{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists}},
			}},
		},
	}
	if err := w.client.Create(t.Context(), plugin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.IgnoreNotFound(w.client.Delete(context.Background(), plugin)) })
}
