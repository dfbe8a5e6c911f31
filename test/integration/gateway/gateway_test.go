// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway_test checks the objects for gateways on a real API server, with the CustomResourceDefinitions of the
// Gateway API and its inference extension, and with the chart's roles and policies.
package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/controllers/gateway"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/gatewaykinds"
)

const (
	chartDir = "../../../charts/modelberth"
	patience = 30 * time.Second
	system   = "modelberth-system"
	// account is the user that the chart's release modelberth in modelberth-system runs as.
	account = "system:serviceaccount:modelberth-system:modelberth"
)

func routers() types.NamespacedName {
	return types.NamespacedName{Namespace: system, Name: "modelberth-router-ext-proc"}
}

func theGateway() types.NamespacedName {
	return types.NamespacedName{Namespace: "gateways", Name: "inference-gateway"}
}

// world is an API server with a set and a router.
type world struct {
	config *rest.Config
	admin  client.Client
	set    *v1beta1.InferenceSet
}

func begin(t *testing.T) *world {
	t.Helper()
	return beginWith(t, gatewaykinds.Files(t)...)
}

func beginWith(t *testing.T, definitions ...string) *world {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	environment := &envtest.Environment{
		CRDDirectoryPaths: append(definitions, filepath.Join(chartDir, "files", "crds")), ErrorIfCRDPathMissing: true,
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{config: config}
	w.admin = w.as(t, "")
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}})
	w.create(t, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "routers", Labels: map[string]string{
			discoveryv1.LabelServiceName: routers().Name, gateway.LabelEndpointPicker: "true",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
			{Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
		},
		Ports: []discoveryv1.EndpointPort{{Name: new("ext-proc"), Port: ptr.To[int32](9002)}},
	})
	w.set = &v1beta1.InferenceSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat"},
		Spec: v1beta1.InferenceSetSpec{Replicas: ptr.To[int32](0), Template: v1beta1.InferenceSetTemplate{
			Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "tiny-chat"}},
		}},
	}
	w.create(t, w.set)
	return w
}

func (w *world) as(t *testing.T, user string) client.Client {
	t.Helper()
	scheme, err := app.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(w.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	out, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *world) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := w.admin.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

func (w *world) get(t *testing.T, name string, into client.Object) {
	t.Helper()
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, into); err != nil {
		t.Fatal(err)
	}
}

// install applies the chart's roles and policies of a release with gateways.
func (w *world) install(t *testing.T) {
	t.Helper()
	rendered, err := exec.CommandContext(t.Context(), os.Getenv("HELM"), "template", "modelberth", chartDir, "--namespace="+system,
		"--kube-version=1.35.4", "--values=../../chart/testdata/gateway.values.yaml", "--set=watchNamespaces=null",
		"--show-only=templates/rbac.yaml", "--show-only=templates/guards.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if object.Object != nil {
			w.create(t, object)
		}
	}
}

// writes counts the writes of a client.
type writes struct{ applied []string }

func (c *writes) around(inner client.WithWatch) client.Client {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Apply: func(ctx context.Context, into client.WithWatch, object runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			c.applied = append(c.applied, fmt.Sprint(object))
			return into.Apply(ctx, object, opts...)
		},
	})
}

// reconciler returns a Reconciler that reads and writes without a cache, as the chart's ServiceAccount.
func (w *world) reconciler(t *testing.T, events record.EventRecorder) (*gateway.Reconciler, *writes) {
	t.Helper()
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}}
	scheme, err := app.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	counted := &writes{}
	api := counted.around(inner)
	return gateway.New(gateway.Config{
		Client: api, Applier: apply.New(api, api, nil, clock.RealClock{}), Events: events, Clock: clock.RealClock{}, Routers: routers(), Gateway: theGateway(), MatchModelNames: true,
	}), counted
}

func (w *world) reconcile(t *testing.T, r *gateway.Reconciler) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.set)})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestObjects follows a set from its first pool to a refused route, with the chart's own roles and policies.
func TestObjects(t *testing.T) {
	w := begin(t)
	w.install(t)
	events := record.NewFakeRecorder(10)
	r, counted := w.reconciler(t, events)
	w.reconcile(t, r)
	w.checkObjects(t)

	counted.applied = nil
	w.reconcile(t, r)
	if len(counted.applied) > 0 {
		t.Errorf("a second pass writes %d objects: %.500s", len(counted.applied), counted.applied)
	}

	slice := &discoveryv1.EndpointSlice{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "routers"}, slice); err != nil {
		t.Fatal(err)
	}
	slice.Endpoints = slice.Endpoints[:1]
	if err := w.admin.Update(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t, r)
	w.get(t, "chat-inferencepool-epp-ipv4", slice)
	if len(counted.applied) != 1 || len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != "10.1.0.2" {
		t.Errorf("after the loss of a router: %d writes, endpoints %v", len(counted.applied), slice.Endpoints)
	}

	if err := w.admin.Delete(t.Context(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "routers"}}); err != nil {
		t.Fatal(err)
	}
	counted.applied = nil
	for range 2 {
		w.reconcile(t, r)
	}
	w.get(t, "chat-inferencepool-epp-ipv4", slice)
	if len(counted.applied) != 1 || len(slice.Endpoints) > 0 {
		t.Errorf("without a router that has such an address: %d writes, endpoints %v", len(counted.applied), slice.Endpoints)
	}

	w.refuse(t)
	for range 3 {
		w.reconcile(t, r)
	}
	want := "Warning GatewayRefused the Gateway inference-gateway does not use HTTPRoute chat-inferencepool: " +
		"NotAllowedByListeners: no listener admits team-a"
	if got := <-events.Events; got != want {
		t.Errorf("the event is %q, want %q", got, want)
	}
	if len(events.Events) > 0 {
		t.Errorf("the same refusal is reported again: %s", <-events.Events)
	}
}

func (w *world) checkObjects(t *testing.T) {
	t.Helper()
	service, slice := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	pool, route := &inferencev1.InferencePool{}, &gatewayv1.HTTPRoute{}
	w.get(t, "chat-inferencepool-epp", service)
	w.get(t, "chat-inferencepool-epp-ipv4", slice)
	w.get(t, "chat-inferencepool", pool)
	w.get(t, "chat-inferencepool", route)
	for _, object := range []client.Object{service, slice, pool, route} {
		if !metav1.IsControlledBy(object, w.set) {
			t.Errorf("%T stays when the set is deleted: its owners are %v", object, object.GetOwnerReferences())
		}
	}
	if len(service.Spec.Selector) > 0 || service.Spec.Ports[0].Port != 9002 || service.Spec.Ports[0].Name != "grpc-ext-proc" {
		t.Errorf("the Service is %+v", service.Spec)
	}
	if slice.Labels[discoveryv1.LabelServiceName] != service.Name || slice.Endpoints[0].Addresses[0] != "10.1.0.1" || *slice.Endpoints[1].Conditions.Ready {
		t.Errorf("the EndpointSlice is %+v", slice)
	}
	wantPool := inferencev1.InferencePoolSpec{
		Selector: inferencev1.LabelSelector{MatchLabels: map[inferencev1.LabelKey]inferencev1.LabelValue{
			"inferenceset.kaito.sh/created-by": "chat", "apps.kubernetes.io/pod-index": "0",
		}},
		TargetPorts: []inferencev1.Port{{Number: 5000}},
		EndpointPickerRef: inferencev1.EndpointPickerRef{
			Group: ptr.To[inferencev1.Group](""), Kind: "Service", Name: "chat-inferencepool-epp",
			Port: &inferencev1.Port{Number: 9002}, FailureMode: inferencev1.EndpointPickerFailClose,
		},
	}
	if diff := cmp.Diff(wantPool, pool.Spec); diff != "" {
		t.Errorf("InferencePool (-want +got):\n%s", diff)
	}
	var matches []string
	for _, rule := range route.Spec.Rules {
		for _, match := range rule.Matches {
			text := *match.Path.Value
			for _, header := range match.Headers {
				text += " " + string(header.Name) + "=" + header.Value
			}
			matches = append(matches, text)
		}
		if ref := rule.BackendRefs[0]; string(*ref.Kind) != "InferencePool" || string(ref.Name) != pool.Name || ref.Namespace != nil {
			t.Errorf("a rule leads to %+v", ref)
		}
	}
	want := []string{
		"/team-a/chat", "/v1 X-Gateway-Model-Name=team-a:chat", "/v1 X-Gateway-Model-Name=chat", "/v1 X-Gateway-Model-Name=tiny-chat",
	}
	if diff := cmp.Diff(want, matches); diff != "" {
		t.Errorf("HTTPRoute (-want +got):\n%s", diff)
	}
	parent := route.Spec.ParentRefs[0]
	if string(*parent.Namespace) != "gateways" || parent.Name != "inference-gateway" {
		t.Errorf("the route's parent is %+v", parent)
	}
}

// refuse writes the status of a gateway that does not admit the route.
func (w *world) refuse(t *testing.T) {
	t.Helper()
	route := &gatewayv1.HTTPRoute{}
	w.get(t, "chat-inferencepool", route)
	route.Status.Parents = []gatewayv1.RouteParentStatus{{
		ParentRef: route.Spec.ParentRefs[0], ControllerName: "example.com/gateway",
		Conditions: []metav1.Condition{{
			Type: "Accepted", Status: metav1.ConditionFalse, Reason: "NotAllowedByListeners", Message: "no listener\nadmits team-a",
			ObservedGeneration: route.Generation, LastTransitionTime: metav1.Now(),
		}},
	}}
	if err := w.admin.Status().Update(t.Context(), route); err != nil {
		t.Fatal(err)
	}
}

// TestTaken: an object of a user has the name of the pool. It stays, and an event names it.
func TestTaken(t *testing.T) {
	w := begin(t)
	w.install(t)
	pool := &inferencev1.InferencePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat-inferencepool"},
		Spec: inferencev1.InferencePoolSpec{
			Selector:          inferencev1.LabelSelector{MatchLabels: map[inferencev1.LabelKey]inferencev1.LabelValue{"app": "x"}},
			TargetPorts:       []inferencev1.Port{{Number: 80}},
			EndpointPickerRef: inferencev1.EndpointPickerRef{Name: "own", Port: &inferencev1.Port{Number: 9002}},
		},
	}
	w.create(t, pool)
	events := record.NewFakeRecorder(10)
	r, _ := w.reconciler(t, events)
	if result := w.reconcile(t, r); result.RequeueAfter == 0 {
		t.Error("nothing looks whether the name is free again")
	}
	if got := <-events.Events; !strings.Contains(got, "GatewayObjectsFailed InferencePool team-a/chat-inferencepool exists and has another owner") {
		t.Errorf("the event is %q", got)
	}
	w.get(t, pool.Name, pool)
	if pool.Spec.EndpointPickerRef.Name != "own" {
		t.Error("a foreign pool was changed")
	}
}

// TestGuards: a stolen token of the controller redirects no other Service, and no route past the router.
func TestGuards(t *testing.T) {
	w := begin(t)
	w.install(t)
	thief := w.as(t, account)
	meta := metav1.ObjectMeta{
		Namespace: "team-a", Name: "stolen", Labels: map[string]string{"app.kubernetes.io/managed-by": "modelberth"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.set, v1beta1.GroupVersion().WithKind("InferenceSet"))},
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: *meta.DeepCopy(), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}}
	slice.Labels[discoveryv1.LabelServiceName] = "bank"
	route := &gatewayv1.HTTPRoute{ObjectMeta: *meta.DeepCopy(), Spec: gatewayv1.HTTPRouteSpec{
		Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{Name: "own", Port: ptr.To[gatewayv1.PortNumber](80)},
		}}}}},
	}}
	pool := gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
		Group: ptr.To[gatewayv1.Group](inferencev1.GroupName), Kind: ptr.To[gatewayv1.Kind]("InferencePool"), Name: "chat-inferencepool",
	}}
	mirror := gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestMirror, RequestMirror: &gatewayv1.HTTPRequestMirrorFilter{
		BackendRef: gatewayv1.BackendObjectReference{Name: "own", Port: ptr.To[gatewayv1.PortNumber](80)},
	}}
	redirect := gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{
		Hostname: ptr.To[gatewayv1.PreciseHostname]("thief.example"),
	}}
	with := func(rule gatewayv1.HTTPRouteRule) *gatewayv1.HTTPRoute {
		return &gatewayv1.HTTPRoute{ObjectMeta: *meta.DeepCopy(), Spec: gatewayv1.HTTPRouteSpec{Rules: []gatewayv1.HTTPRouteRule{rule}}}
	}
	mirrored := with(gatewayv1.HTTPRouteRule{
		Filters: []gatewayv1.HTTPRouteFilter{mirror}, BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: pool}},
	})
	mirroredByBackend := with(gatewayv1.HTTPRouteRule{
		BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: pool, Filters: []gatewayv1.HTTPRouteFilter{mirror}}},
	})
	redirected := with(gatewayv1.HTTPRouteRule{Filters: []gatewayv1.HTTPRouteFilter{redirect}})
	orphan := &inferencev1.InferencePool{ObjectMeta: *meta.DeepCopy(), Spec: inferencev1.InferencePoolSpec{
		Selector:          inferencev1.LabelSelector{MatchLabels: map[inferencev1.LabelKey]inferencev1.LabelValue{"app": "x"}},
		TargetPorts:       []inferencev1.Port{{Number: 80}},
		EndpointPickerRef: inferencev1.EndpointPickerRef{Name: "own", Port: &inferencev1.Port{Number: 9002}},
	}}
	orphan.OwnerReferences = nil
	for _, c := range []struct {
		object client.Object
		want   string
	}{
		{slice, "may write only the EndpointSlices of the endpoint picker"},
		{route, "may write only HTTPRoutes to InferencePools"},
		{mirrored, "may write only HTTPRoutes to InferencePools"},
		{mirroredByBackend, "may write only HTTPRoutes to InferencePools"},
		{redirected, "may write only HTTPRoutes to InferencePools"},
		{orphan, "may create objects only for a Workspace or an InferenceSet"},
	} {
		eventually(t, c.want, func() (bool, string) { // a new policy takes effect after a moment
			err := thief.Create(t.Context(), c.object, client.DryRunAll)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), c.want), fmt.Sprint(err)
		})
	}
}

// run runs the whole controller until the test ends.
func (w *world) run(t *testing.T) {
	t.Helper()
	overlay, err := filepath.Abs("../../../examples/local-catalog")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := app.NewManager(ctx, w.config, options.Controller{
		MultiNode: isolation.Allow, Metrics: options.Metrics{Address: "0"}, HealthAddress: "0", Workers: 4, QPS: 200, Burst: 400,
		CatalogOverlay: overlay, AgentImage: "registry.example/agent:test", HubEndpoint: "http://hub.example",
		NodeClasses: []v1beta1.NodeClassReference{{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "default"}},
		Gateway:     options.Gateway{Routers: routers(), Gateway: theGateway()},
	}, app.Hooks{SkipNameValidation: true})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWithoutKinds: in a cluster without gateways, the controller serves the set.
func TestWithoutKinds(t *testing.T) {
	w := beginWith(t)
	w.run(t)
	eventually(t, "a Service", func() (bool, string) {
		err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(w.set), &corev1.Service{})
		return err == nil, fmt.Sprint(err)
	})
}

// TestController follows the routers with the whole controller.
func TestController(t *testing.T) {
	w := begin(t)
	w.run(t)
	addresses := func() string {
		slice := &discoveryv1.EndpointSlice{}
		err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "chat-inferencepool-epp-ipv4"}, slice)
		if err != nil {
			return err.Error()
		}
		out := ""
		for i := range slice.Endpoints {
			out += slice.Endpoints[i].Addresses[0] + " "
		}
		return out
	}
	eventually(t, "the routers", func() (bool, string) { got := addresses(); return got == "10.1.0.1 10.1.0.2 ", got })
	slice := &discoveryv1.EndpointSlice{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "routers"}, slice); err != nil {
		t.Fatal(err)
	}
	slice.Endpoints[0].Addresses = []string{"10.1.0.3"}
	if err := w.admin.Update(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new router", func() (bool, string) { got := addresses(); return got == "10.1.0.1 10.1.0.3 ", got })
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "chat-inferencepool"}, &gatewayv1.HTTPRoute{}); err != nil {
		t.Error(err)
	}
}

// eventually waits until done is true, and reports the last state otherwise.
func eventually(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	seen := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var ok bool
		if ok, seen = done(); ok {
			return
		}
	}
	t.Fatalf("%s: still %s", what, seen)
}
