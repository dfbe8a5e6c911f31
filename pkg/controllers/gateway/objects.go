// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Port is the port of the endpoint picker, in the Services and in the routers' pods.
const Port = 9002

const (
	// portName is the name of the port in Services and EndpointSlices. Istio reads the protocol from its beginning.
	portName = "grpc-ext-proc"
	// headerModel is set by body-based routers, which read the model's name from the body of a request.
	headerModel = "X-Gateway-Model-Name"
	// maxNames is the largest number of matches in a rule of an HTTPRoute.
	maxNames = 64
	// deadline is the longest time that the router allows for a request. A gateway's own default, often 15 s, would cut
	// answers.
	deadline = "30m"
)

// LabelEndpointPicker is on the Services of endpoint pickers, and on their EndpointSlices.
const LabelEndpointPicker = "modelberth.dev/endpoint-picker"

// Facts are all that determines the objects of a set.
type Facts struct {
	Set *v1beta1.InferenceSet
	// TargetPort is the port of the engines.
	TargetPort int32
	// Names are the names of the models, the set's own first.
	Names []string
	// Routers are the EndpointSlices of the routers.
	Routers []discoveryv1.EndpointSlice
	// Copies are the set's EndpointSlices of the endpoint picker that exist.
	Copies []discoveryv1.EndpointSlice
	// Gateway is the Gateway of the HTTPRoute; empty for none.
	Gateway types.NamespacedName
	// MatchModelNames: the HTTPRoute also matches the names of models, which several sets may have.
	MatchModelNames bool
}

func (f *Facts) pool() string { return f.Set.Name + v1beta1.SuffixInferencePool }

func (f *Facts) picker() string { return f.Set.Name + v1beta1.SuffixInferencePoolPicker }

// meta returns the metadata of an object of the set.
func (f *Facts) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: f.Set.Namespace,
		Labels: map[string]string{v1beta1.LabelInferenceSet: f.Set.Name, v1beta1.LabelManagedBy: v1beta1.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(f.Set, v1beta1.GroupVersion().WithKind(v1beta1.InferenceSetKind)),
		},
	}
}

// service returns the Service of the endpoint picker. It has no selector, because the routers are in another namespace.
func (f *Facts) service() *corev1.Service {
	out := &corev1.Service{
		ObjectMeta: f.meta(f.picker()),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{
				Name: portName, Port: Port, TargetPort: intstr.FromInt32(Port), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
	out.Labels[LabelEndpointPicker] = "true"
	return out
}

// slices returns the EndpointSlices of that Service, one for each kind of address. A slice that exists becomes empty once
// no router has such an address: another pod could get the address, and would be the endpoint picker.
func (f *Facts) slices() []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: f.meta(f.picker() + "-" + strings.ToLower(string(kind))), AddressType: kind, Endpoints: []discoveryv1.Endpoint{},
			Ports: []discoveryv1.EndpointPort{{
				Name: new(portName), Port: ptr.To[int32](Port), Protocol: ptr.To(corev1.ProtocolTCP),
			}},
		}
		slice.Labels[LabelEndpointPicker] = "true"
		slice.Labels[discoveryv1.LabelServiceName] = f.picker()
		slice.Labels[discoveryv1.LabelManagedBy] = v1beta1.ManagedBy
		isServed := slices.ContainsFunc(f.Copies, func(each discoveryv1.EndpointSlice) bool { return each.Name == slice.Name })
		for i := range f.Routers {
			if f.Routers[i].AddressType == kind {
				isServed = true
				slice.Endpoints = append(slice.Endpoints, endpoints(&f.Routers[i])...)
			}
		}
		slices.SortFunc(slice.Endpoints, func(a, b discoveryv1.Endpoint) int { return slices.Compare(a.Addresses, b.Addresses) })
		if isServed {
			out = append(out, slice)
		}
	}
	return out
}

// endpoints returns the endpoints of a slice without the fields that only the routers' own namespace needs.
func endpoints(of *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	var out []discoveryv1.Endpoint
	for i := range of.Endpoints {
		from := &of.Endpoints[i]
		out = append(out, discoveryv1.Endpoint{
			Addresses: from.Addresses, Conditions: from.Conditions, NodeName: from.NodeName, Zone: from.Zone,
		})
	}
	return out
}

// inferencePool returns the pool of the set's ready pods. A gateway must not send a request anywhere without the
// router's answer: FailClose.
func (f *Facts) inferencePool() *inferencev1.InferencePool {
	return &inferencev1.InferencePool{
		ObjectMeta: f.meta(f.pool()),
		Spec: inferencev1.InferencePoolSpec{
			Selector: inferencev1.LabelSelector{MatchLabels: map[inferencev1.LabelKey]inferencev1.LabelValue{
				v1beta1.LabelInferenceSet: inferencev1.LabelValue(f.Set.Name), appsv1.PodIndexLabel: "0",
			}},
			TargetPorts: []inferencev1.Port{{Number: inferencev1.PortNumber(f.TargetPort)}},
			EndpointPickerRef: inferencev1.EndpointPickerRef{
				Group: ptr.To[inferencev1.Group](""), Kind: "Service", Name: inferencev1.ObjectName(f.picker()),
				Port: &inferencev1.Port{Number: Port}, FailureMode: inferencev1.EndpointPickerFailClose,
			},
		},
	}
}

// httpRoute returns the route to the pool, by a path that only this set has, and by the header of body-based routers.
func (f *Facts) httpRoute() *gatewayv1.HTTPRoute {
	own := "/" + f.Set.Namespace + "/" + f.Set.Name
	byPath := f.rule(gatewayv1.HTTPRouteMatch{Path: prefix(own)})
	byPath.Filters = []gatewayv1.HTTPRouteFilter{{
		Type: gatewayv1.HTTPRouteFilterURLRewrite,
		URLRewrite: &gatewayv1.HTTPURLRewriteFilter{Path: &gatewayv1.HTTPPathModifier{
			Type: gatewayv1.PrefixMatchHTTPPathModifier, ReplacePrefixMatch: new("/"),
		}},
	}}
	var byName []gatewayv1.HTTPRouteMatch
	for _, name := range f.matched() {
		byName = append(byName, gatewayv1.HTTPRouteMatch{
			Path: prefix("/v1"),
			Headers: []gatewayv1.HTTPHeaderMatch{{
				Type: ptr.To(gatewayv1.HeaderMatchExact), Name: headerModel, Value: name,
			}},
		})
	}
	return &gatewayv1.HTTPRoute{
		ObjectMeta: f.meta(f.pool()),
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
				Group: ptr.To[gatewayv1.Group](gatewayv1.GroupName), Kind: ptr.To[gatewayv1.Kind]("Gateway"),
				Namespace: new(gatewayv1.Namespace(f.Gateway.Namespace)), Name: gatewayv1.ObjectName(f.Gateway.Name),
			}}},
			Rules: []gatewayv1.HTTPRouteRule{byPath, f.rule(byName...)},
		},
	}
}

// matched returns the names in the header of a body-based router. Only NAMESPACE:NAME is sure to be this set's alone.
func (f *Facts) matched() []string {
	out := []string{f.Set.Namespace + ":" + f.Set.Name}
	if f.MatchModelNames {
		out = append(out, f.Names...)
	}
	return out[:min(len(out), maxNames)]
}

func (f *Facts) rule(matches ...gatewayv1.HTTPRouteMatch) gatewayv1.HTTPRouteRule {
	return gatewayv1.HTTPRouteRule{
		Matches: matches,
		BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{
				Group: ptr.To[gatewayv1.Group](inferencev1.GroupName), Kind: ptr.To[gatewayv1.Kind]("InferencePool"),
				Name: gatewayv1.ObjectName(f.pool()),
			},
			Weight: ptr.To[int32](1),
		}}},
		Timeouts: &gatewayv1.HTTPRouteTimeouts{Request: ptr.To[gatewayv1.Duration](deadline)},
	}
}

func prefix(path string) *gatewayv1.HTTPPathMatch {
	return &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchPathPrefix), Value: &path}
}
