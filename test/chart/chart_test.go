// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/router/run"
)

const (
	chartDir = "../../charts/modelberth"
	// kubeVersion stands in for the cluster's.
	kubeVersion = "1.35.4"
	// helmTimeout bounds one run of helm. A run takes about a second.
	helmTimeout = time.Minute
)

var update = flag.Bool("update", false, "write the golden files anew")

// helm runs helm and returns its stdout, and its stderr as the error.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary := os.Getenv("HELM")
	if binary == "" {
		t.Fatal(`HELM names no helm binary: run this through make test-unit, or after: eval "$(make env)"`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), helmTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, binary, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", errors.New(stdout.String() + stderr.String())
	}
	return stdout.String(), nil
}

func template(t *testing.T, args ...string) (string, error) {
	t.Helper()
	fixed := []string{"template", "modelberth", chartDir, "--namespace", "modelberth-system", "--kube-version", kubeVersion}
	return helm(t, append(fixed, args...)...)
}

// document is one rendered object.
type document struct {
	source string
	text   string
}

// documents splits helm's output.
func documents(rendered string) []document {
	var out []document
	for text := range strings.SplitSeq("\n"+rendered, "\n---\n") {
		header, body, ok := strings.Cut(text, "\n")
		source, found := strings.CutPrefix(header, "# Source: ")
		if ok && found {
			out = append(out, document{source: source, text: body})
		}
	}
	return out
}

// generated reports whether the object comes from a generated file. Those have tests of their own.
func (d document) generated() bool {
	return d.source == "modelberth/templates/crds.yaml" || d.source == "modelberth/templates/policies.yaml"
}

// isForeign reports whether client-go lacks the object's type. The API server reads CustomResourceDefinitions, and
// Prometheus the rules, in the integration tests.
func (d document) isForeign() bool {
	return d.source == "modelberth/templates/crds.yaml" || strings.HasPrefix(d.text, "apiVersion: monitoring.coreos.com/")
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"minimal", "single", "full", "watched", "router", "gateway", "keda"} {
		t.Run(name, func(t *testing.T) {
			rendered, err := template(t, "--values", filepath.Join("testdata", name+".values.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, d := range documents(rendered) {
				if !d.generated() {
					got.WriteString("---\n# Source: " + d.source + "\n" + d.text + "\n")
				}
			}
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s differs; if it should, run this test with -update and review (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// TestObjectsAreStrictlyValid catches misspelt and misplaced fields: YAML accepts them.
func TestObjectsAreStrictlyValid(t *testing.T) {
	for _, name := range []string{"minimal", "single", "full", "watched", "router", "gateway", "keda"} {
		t.Run(name, func(t *testing.T) {
			rendered, err := template(t, "--values", filepath.Join("testdata", name+".values.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			seen := 0
			for _, d := range documents(rendered) {
				if d.isForeign() {
					continue
				}
				decode(t, d)
				seen++
			}
			if seen < 6 {
				t.Errorf("only %d objects were rendered: are they split as this test thinks?", seen)
			}
		})
	}
}

func decode(t *testing.T, d document) runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	object, _, err := decoder.Decode([]byte(d.text), nil, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%s", d.source, err, d.text)
	}
	return object
}

// find returns the objects of one type among the rendered ones.
func find[T runtime.Object](t *testing.T, rendered string) []T {
	t.Helper()
	var out []T
	for _, d := range documents(rendered) {
		if d.isForeign() {
			continue
		}
		if object, ok := decode(t, d).(T); ok {
			out = append(out, object)
		}
	}
	return out
}

// TestFlags parses the container's arguments as the controller does.
func TestFlags(t *testing.T) {
	for _, name := range []string{"minimal", "single", "full", "watched"} {
		t.Run(name, func(t *testing.T) {
			rendered, err := template(t, "--values", filepath.Join("testdata", name+".values.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			deployments := find[*appsv1.Deployment](t, rendered)
			if len(deployments) != 1 {
				t.Fatalf("there are %d Deployments, want 1", len(deployments))
			}
			var o options.Controller
			flags := flag.NewFlagSet(name, flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			o.Bind(flags)
			logging := zap.Options{}
			logging.BindFlags(flags)
			if err := flags.Parse(deployments[0].Spec.Template.Spec.Containers[0].Args); err != nil {
				t.Fatalf("the controller refuses the chart's flags: %v", err)
			}
			if rest := flags.Args(); len(rest) > 0 {
				t.Errorf("the controller does not read the arguments from %q on", rest[0])
			}
			if _, err := options.ParseLive(settingsOf(t, rendered, o.Settings)); err != nil {
				t.Errorf("the controller refuses the settings in the ConfigMap: %v", err)
			}
			if err := errors.Join(o.Validate(), o.CheckLive(flags)); err != nil {
				t.Errorf("the controller refuses the chart's settings: %v", err)
			}
			if !o.LeaderElect {
				t.Error("a second replica would act beside the first: --leader-elect is not set")
			}
		})
	}
}

// settingsOf returns the data of the ConfigMap with settings.
func settingsOf(t *testing.T, rendered string, name types.NamespacedName) map[string]string {
	t.Helper()
	for _, object := range find[*corev1.ConfigMap](t, rendered) {
		if object.Namespace == name.Namespace && object.Name == name.Name {
			return object.Data
		}
	}
	t.Fatalf("there is no ConfigMap %q with the controller's settings", name)
	return nil
}

// TestSettingsRestartNothing: a setting that can change while the controller runs is only in the ConfigMap. So a change
// of its value changes no other object.
func TestSettingsRestartNothing(t *testing.T) {
	render := func(args ...string) (others string, settings map[string]string) {
		rendered, err := template(t, append([]string{"--values", "testdata/minimal.values.yaml"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(rendered) {
			if d.source != "modelberth/templates/settings.yaml" {
				others += d.text
			}
		}
		return others, settingsOf(t, rendered, types.NamespacedName{Namespace: "modelberth-system", Name: "modelberth-settings"})
	}
	before, defaults := render()
	after, changed := render("--set", "logging.level=3", "--set-json", `spending={"perWorkspace": 1.5, "perNamespace": 2000000, "cluster": 3000000,
		"unlimited": true, "defaultMaxHourlyPrice": 4, "instanceTypes": ["a*", "b"]}`)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("other objects change (-before +after):\n%s", diff)
	}
	keys := options.LiveFlags()
	if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(defaults))); diff != "" {
		t.Errorf("keys (-controller +chart):\n%s", diff)
	}
	for _, key := range keys {
		if defaults[key] == changed[key] {
			t.Errorf("%s does not follow its value", key)
		}
	}
	want := &options.Live{LogLevel: -3, Spending: options.Spending{
		PerWorkspace: 1.5, PerNamespace: 2e6, Cluster: 3e6, Unlimited: true, DefaultMaxHourlyPrice: 4, InstanceTypes: []string{"a*", "b"},
	}}
	got, err := options.ParseLive(changed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestRefusals(t *testing.T) {
	complete := []string{"--values", "testdata/minimal.values.yaml"}
	cases := []struct {
		reason string
		args   []string
		want   string
	}{
		{"what is missing is named all at once: clouds", nil, "clouds is empty"},
		{"what is missing is named all at once: image", nil, "image.repository is empty"},
		{"what is missing is named all at once: agent", nil, "agentImage.repository is empty"},
		{"a cloud without a default needs a NodeClass", append(complete, "--set", "clouds={gcp}"), "nodeClasses is empty and cloud gcp"},
		{"an unknown value is a typing mistake", append(complete, "--set", "replicas=3"), "additional properties 'replicas' not allowed"},
		{"an unknown nested value is one too", append(complete, "--set", "image.name=x"), "additional properties 'name' not allowed"},
		{"a cloud that nobody knows", append(complete, "--set", "clouds={azuer}"), "/clouds/0"},
		{"a digest without its algorithm", append(complete, "--set", "image.digest=0123"), "/image/digest"},
		{"a pull policy in lower case", append(complete, "--set", "image.pullPolicy=always"), "/image/pullPolicy"},
		{"a hub without a scheme", append(complete, "--set", "hub.endpoint=hub.example"), "/hub/endpoint"},
		{"a catalogue file that would be refused at start", append(complete, "--set", `catalog.prices\.yaml=x`), "/catalog"},
		{"calibration files that nobody may sign", append(complete, "--set", "calibration.configMap=measured"), "calibration needs both configMap and keys"},
		{"a calibration key in PEM", append(complete, "--set", "calibration.configMap=measured,calibration.keys={-----BEGIN PUBLIC KEY-----}"), "/calibration/keys/0"},
		{"a NodeClass without a group", append(complete, "--set", "nodeClasses[0].kind=AKSNodeClass,nodeClasses[0].name=default"), "/nodeClasses/0"},
		{"a NodeClass whose name would break the flag", append(complete, "--set", "nodeClasses[0].kind=a/b,nodeClasses[0].group=g,nodeClasses[0].name=n"), "/nodeClasses/0/kind"},
		{"a ceiling of nothing, which was none once", append(complete, "--set", "spending.cluster=0"), "/spending/cluster"},
		{"no worker", append(complete, "--set", "workers=0"), "/workers"},
		{"a log level that zap does not know", append(complete, "--set", "logging.level=verbose"), "/logging/level"},
		{"a consumer of prompts that is any pod", append(complete, "--set", "kvEvents.consumer.namespace=router"), "kvEvents.consumer is incomplete"},
		{"a consumer of prompts in no namespace", append(complete, "--set", "kvEvents.consumer.podLabels.app=router"), "kvEvents.consumer is incomplete"},
		{"limits that nothing enforces", append(complete, "--set", "policies.install=false,allow.templates=false"), "the policies enforce allow"},
		{
			"existing nodes of which nobody may see what is free", append(complete, "--set", "capacity.backend=existing,watchNamespaces={team-a}"),
			"set watchPodsOfNodes",
		},
		{"a namespace that no namespace is called", append(complete, "--set", "watchNamespaces={Team}"), "/watchNamespaces/0"},
		{"an image prefix that would break a rule", append(complete, "--set", "allow.engineImages={a'b}"), "/allow/engineImages/0"},
		{"an API server by its name", append(complete, "--set", "networkPolicy.apiServer[0].cidr=kubernetes.default.svc"), "/networkPolicy/apiServer/0/cidr"},
		{"a scraper that is nobody", append(complete, "--set-json", `networkPolicy.metricsFrom=[{}]`), "/networkPolicy/metricsFrom/0"},
		{"a certificate for a router's plain HTTP", append(complete, "--set", "router.metrics.insecure=true", "--set", "router.metrics.certificateSecret=x"), "router.metrics.certificateSecret has no effect with router.metrics.insecure"},
		{"gateways without a router", append(complete, "--set", "router.gateway.enabled=true,router.gateway.namespace=x"), "router.gateway needs router.enabled"},
		{"gateways in no namespace", append(complete, "--set", "router.enabled=true,router.image.repository=x,router.gateway.enabled=true"), "router.gateway.namespace is empty"},
		{"KEDA without a router", append(complete, "--set", "router.keda.enabled=true"), "router.keda needs router.enabled"},
		{"a certificate for KEDA without TLS", append(complete, "--set", "router.keda.insecure=true,router.keda.certificateSecret=x"), "router.keda.certificateSecret and router.keda.verifyClients have no effect with router.keda.insecure"},
		{"clients of KEDA that nobody can verify", append(complete, "--set", "router.keda.verifyClients=true"), "router.keda.verifyClients needs router.keda.certificateSecret"},
		{"a certificate for gateways without TLS", append(complete, "--set", "router.gateway.insecure=true,router.gateway.certificateSecret=x"), "router.gateway.certificateSecret has no effect with router.gateway.insecure"},
		{"tokens at an open router", append(complete, "--set", "router.open=true", "--set", "router.tokens.audience=x"), "router.tokens.audience has no effect with router.open"},
		{"limits of tokens without an audience", append(complete, "--set", "router.tokens.requestsPerMinute=5"), "router.tokens has limits but no audience"},
		{"a router without an image", append(complete, "--set", "router.enabled=true"), "router.image.repository is empty"},
		{"a certificate for plain HTTP", append(complete, "--set", "metrics.insecure=true,metrics.certificateSecret=tls"), "metrics.certificateSecret has no effect"},
		{"a name that no label can have", append(complete, "--set", "nameOverride=Work space"), "/nameOverride"},
		{"a Kubernetes that is too old", append(complete, "--kube-version", "1.30.9"), "chart requires kubeVersion"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			out, err := template(t, c.args...)
			if err == nil {
				t.Fatalf("it was rendered:\n%s", out)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error does not name %q:\n%v", c.want, err)
			}
		})
	}
}

// TestCatalogRestarts: a changed catalogue restarts the pods, because they read it only at the start.
func TestCatalogRestarts(t *testing.T) {
	checksum := func(content string) string {
		rendered, err := template(t, "--values", "testdata/minimal.values.yaml", "--set", `catalog.models\.yaml=`+content)
		if err != nil {
			t.Fatal(err)
		}
		deployments := find[*appsv1.Deployment](t, rendered)
		return deployments[0].Spec.Template.Annotations["checksum/catalog"]
	}
	first, second := checksum("a"), checksum("b")
	if first == "" || first == second {
		t.Errorf("the pod template's annotation is %q for one catalogue and %q for another", first, second)
	}
}

// TestArbitraryUID: pods name no user or group if the cluster assigns them.
func TestArbitraryUID(t *testing.T) {
	rendered, err := template(t, "--values", "testdata/router.values.yaml", "--set", "arbitraryUID=true")
	if err != nil {
		t.Fatal(err)
	}
	deployments := find[*appsv1.Deployment](t, rendered)
	if len(deployments) != 2 {
		t.Fatalf("there are %d Deployments, want the controller's and the router's", len(deployments))
	}
	want := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for _, deployment := range deployments {
		pod := deployment.Spec.Template.Spec
		if diff := cmp.Diff(want, pod.SecurityContext); diff != "" {
			t.Errorf("Deployment %s (-want +got):\n%s", deployment.Name, diff)
		}
		for i := range pod.Containers {
			if of := pod.Containers[i].SecurityContext; of.RunAsUser != nil || of.RunAsGroup != nil {
				t.Errorf("container %s names a user: %v", pod.Containers[i].Name, of)
			}
		}
	}
}

// TestNameOverride: tools find the controller by the name of KAITO's, and its own objects still select its pods. A label of
// the user changes neither.
func TestNameOverride(t *testing.T) {
	rendered, err := template(t, "--values", "testdata/router.values.yaml", "--set", "networkPolicy.enabled=true,nameOverride=workspace",
		"--set", `commonLabels.app\.kubernetes\.io/part-of=platform`)
	if err != nil {
		t.Fatal(err)
	}
	deployments := find[*appsv1.Deployment](t, rendered)
	at := slices.IndexFunc(deployments, func(d *appsv1.Deployment) bool { return d.Name == "modelberth" })
	if at < 0 {
		t.Fatal("the Deployment has another name")
	}
	pods := labels.Set(deployments[at].Spec.Template.Labels)
	for where, got := range map[string]labels.Set{"Deployment": deployments[at].Labels, "pods": pods} {
		want := labels.Set{"app.kubernetes.io/name": "workspace", "app.kubernetes.io/part-of": "modelberth"}
		if !labels.SelectorFromSet(want).Matches(got) {
			t.Errorf("labels of the %s are %v, want %v", where, got, want)
		}
	}
	selectors := map[string]labels.Set{"Deployment": deployments[at].Spec.Selector.MatchLabels}
	for _, service := range find[*corev1.Service](t, rendered) {
		if service.Name == "modelberth-metrics" {
			selectors["Service"] = service.Spec.Selector
		}
	}
	for _, policy := range find[*networkingv1.NetworkPolicy](t, rendered) {
		if policy.Name == "modelberth" {
			selectors["NetworkPolicy"] = policy.Spec.PodSelector.MatchLabels
		}
	}
	for _, budget := range find[*policyv1.PodDisruptionBudget](t, rendered) {
		if budget.Name == "modelberth" {
			selectors["PodDisruptionBudget"] = budget.Spec.Selector.MatchLabels
		}
	}
	for _, kind := range []string{"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"} {
		if selectors[kind] == nil || !labels.SelectorFromSet(selectors[kind]).Matches(pods) {
			t.Errorf("the %s selects %v, and the pods have %v", kind, selectors[kind], pods)
		}
	}
}

// TestNetworkPolicyReachesEngines: the controller's own policy lets it reach every port of a Workspace's pods. A closed
// port would look isolated, and the engines of a group would start among untrusted pods.
func TestNetworkPolicyReachesEngines(t *testing.T) {
	for _, name := range []string{"single", "full"} {
		rendered, err := template(t, "--values", filepath.Join("testdata", name+".values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		policies := find[*networkingv1.NetworkPolicy](t, rendered)
		if len(policies) != 1 {
			t.Fatalf("%s: there are %d NetworkPolicies, want 1", name, len(policies))
		}
		isOpen := slices.ContainsFunc(policies[0].Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return len(rule.Ports) == 0 && slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool {
				pods, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
				return err == nil && peer.NamespaceSelector != nil && peer.NamespaceSelector.Size() == 0 &&
					pods.Matches(labels.Set{v1beta1.LabelWorkspace: "any"})
			})
		})
		if !isOpen {
			t.Errorf("%s: no rule opens all ports of the pods of Workspaces: %+v", name, policies[0].Spec.Egress)
		}
	}
}

// TestPrivileges checks the roles without knowledge of the code. End-to-end tests check that they suffice.
func TestPrivileges(t *testing.T) {
	rendered, err := template(t, "--values", "testdata/minimal.values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]bool{}
	for _, binding := range find[*rbacv1.ClusterRoleBinding](t, rendered) {
		bound[binding.RoleRef.Name] = true
	}
	rules := 0
	for _, role := range find[*rbacv1.ClusterRole](t, rendered) {
		if !bound[role.Name] {
			continue // for people
		}
		for _, rule := range role.Rules {
			rules++
			all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs)
			if slices.Contains(all, "*") {
				t.Errorf("a rule of ClusterRole %s has a wildcard: %v", role.Name, rule)
			}
			if slices.Contains(rule.Resources, "secrets") && !slices.Equal(rule.Verbs, []string{"get"}) {
				t.Errorf("Secrets may be read one by one only, ClusterRole %s has verbs %v", role.Name, rule.Verbs)
			}
			for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
				if slices.Contains(rule.Verbs, verb) {
					t.Errorf("a rule of ClusterRole %s has the verb %s: %v", role.Name, verb, rule)
				}
			}
		}
	}
	if rules == 0 {
		t.Error("no rule of a bound ClusterRole was seen")
	}
}

// TestBackEndPrivileges: a back end may acquire machines only in its own way, but may release machines of all back
// ends.
func TestBackEndPrivileges(t *testing.T) {
	tests := []struct {
		values string
		want   []string
	}{
		{"clouds={azure}", []string{"nodeclaims create", "nodepools create"}},
		{"clouds={aws},capacity.backend=nodeclaim", []string{"nodeclaims create"}},
		{"clouds={azure},capacity.backend=nodepool", []string{"events watch", "nodepools create", "nodepools get", "nodepools patch"}},
		{"clouds={azure},capacity.backend=nodepool,capacity.staticNodePools=true", []string{"nodepools create", "nodepools get", "nodepools patch"}},
		{"clouds={azure},capacity.backend=pods", []string{"events watch"}},
		{"clouds={azure},capacity.backend=existing", nil},
	}
	always := []string{
		"nodeclaims delete", "nodeclaims get", "nodeclaims list", "nodeclaims watch", "nodepools delete", "nodepools list", "nodepools watch",
	}
	for _, test := range tests {
		t.Run(test.values, func(t *testing.T) {
			rendered, err := template(t, "--values", "testdata/minimal.values.yaml", "--set="+test.values)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, role := range find[*rbacv1.ClusterRole](t, rendered) {
				for _, rule := range role.Rules {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							isOfBackEnd := slices.Contains(rule.APIGroups, "karpenter.sh") || resource == "events" && verb == "watch"
							if isOfBackEnd {
								got = append(got, resource+" "+verb)
							}
						}
					}
				}
			}
			want := slices.Concat(always, test.want)
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestGeneratedFiles: every generated file reaches the cluster unchanged and can be left out. CustomResourceDefinitions
// outlive the release.
func TestGeneratedFiles(t *testing.T) {
	for _, kind := range []string{"crds", "policies"} {
		t.Run(kind, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(chartDir, "files", kind, "*.yaml"))
			if err != nil || len(files) == 0 {
				t.Fatalf("there is nothing in files/%s (%v): run make generate", kind, err)
			}
			with, err := template(t, "--values", "testdata/minimal.values.yaml")
			if err != nil {
				t.Fatal(err)
			}
			without, err := template(t, "--values", "testdata/minimal.values.yaml", "--set", kind+".install=false")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				for _, object := range objectsOf(t, file) {
					if !strings.Contains(with, object) {
						t.Errorf("an object of %s is not rendered as it is:\n%s", file, object)
					}
					if strings.Contains(without, object) {
						t.Errorf("%s is rendered although %s.install is false", file, kind)
					}
					if kind == "crds" && !strings.Contains(object, "helm.sh/resource-policy: keep") {
						t.Errorf("%s would be deleted with the release, and every Workspace with it", file)
					}
				}
			}
		})
	}
}

// objectsOf returns the objects of a file, without the comments in front of them.
func objectsOf(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		start := strings.Index("\n"+part, "\napiVersion:")
		if start < 0 {
			t.Fatalf("a part of %s has no apiVersion:\n%s", file, part)
		}
		out = append(out, strings.TrimSpace(part[start:]))
	}
	return out
}

func TestLint(t *testing.T) {
	for _, args := range [][]string{nil, {"--strict", "--values", "testdata/full.values.yaml"}} {
		out, err := helm(t, append([]string{"lint", chartDir, "--kube-version", kubeVersion}, args...)...)
		if err != nil {
			t.Errorf("helm lint %v: %v", args, err)
		}
		if strings.Contains(out, "[WARNING]") || strings.Contains(out, "[ERROR]") {
			t.Errorf("helm lint %v is not clean:\n%s", args, out)
		}
	}
}

// TestPods: pods can wait for machines of a cloud without a NodeClass. With the default back end, the controller may
// not read events.
func TestPods(t *testing.T) {
	const mayRead = "- apiGroups: [\"\"]\n  resources: [events]\n  verbs: [watch]\n"
	for _, test := range []struct {
		values string
		want   bool
	}{{"--set=clouds={gcp},capacity.backend=pods", true}, {"--set=clouds={azure}", false}} {
		rendered, err := template(t, test.values, "--set=image.repository=a,agentImage.repository=b")
		if err != nil {
			t.Fatal(err)
		}
		isPods := strings.Contains(rendered, "- --capacity-backend=pods\n")
		hasClass := strings.Contains(rendered, "--node-class=")
		if reads := strings.Contains(rendered, mayRead); reads != test.want || isPods != test.want || hasClass == test.want {
			t.Errorf("%s: reads events %v, waits with pods %v, names a NodeClass %v; want %v, %[5]v, %v",
				test.values, reads, isPods, hasClass, test.want, !test.want)
		}
	}
}

// TestRouterFlags parses the router's arguments as the router does, with keys and without. An earlier chart's values, used
// again, lack router.keda.
func TestRouterFlags(t *testing.T) {
	for _, more := range []string{
		"router.open=false",
		"router.open=true,router.tokens.audience=,router.tokens.requestsPerMinute=0",
		"router.metrics.insecure=true,router.metrics.certificateSecret=",
		"router.gateway.enabled=true,router.gateway.namespace=gateways,router.gateway.insecure=true",
		"router.gateway.enabled=true,router.gateway.namespace=gateways,router.gateway.certificateSecret=x",
		"router.keda=null",
		"router.keda.enabled=true,router.keda.insecure=true",
		"router.keda.enabled=true,router.keda.certificateSecret=x,router.keda.verifyClients=true",
	} {
		t.Run(more, func(t *testing.T) {
			rendered, err := template(t, "--values", "testdata/router.values.yaml", "--set", more)
			if err != nil {
				t.Fatal(err)
			}
			for _, deployment := range find[*appsv1.Deployment](t, rendered) {
				container := deployment.Spec.Template.Spec.Containers[0]
				if container.Name != "router" {
					continue
				}
				var o run.Options
				flags := flag.NewFlagSet(more, flag.ContinueOnError)
				o.Bind(flags)
				// The kubelet puts the container's own limit there.
				for i := range container.Args {
					container.Args[i] = strings.ReplaceAll(container.Args[i], "$("+container.Env[0].Name+")", "536870912")
				}
				if err := flags.Parse(container.Args); err != nil {
					t.Fatal(err)
				}
				if o.MemoryLimit != 512<<20 {
					t.Errorf("the limit of memory is %d", o.MemoryLimit)
				}
				if err := o.Validate(); err != nil {
					t.Error(err)
				}
				return
			}
			t.Error("there is no router")
		})
	}
}
