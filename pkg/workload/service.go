// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Service returns the endpoint of the Workspace: port 80 of the first pod, once it is ready. If a consumer is named, a
// Service inside the cluster also exposes the engine's KV cache events. A load balancer never does.
func Service(in Input) *corev1.Service {
	ws := in.Workspace
	kind := corev1.ServiceTypeClusterIP
	ports := []corev1.ServicePort{servicePort(portHTTP, v1beta1.ServicePort, targetPort(ws))}
	switch {
	case ws.Annotations[v1beta1.AnnotationEnableLoadBalancer] == "True":
		kind = corev1.ServiceTypeLoadBalancer
	case in.servesKVEvents():
		ports = append(ports, servicePort(portKVEvents, v1beta1.KVEventsPort, int32(in.Engine.KVEventsPort)))
	}
	selector := podSelector(ws)
	selector[appsv1.PodIndexLabel] = "0"
	return service(ws, ws.Name, corev1.ServiceSpec{Type: kind, Selector: selector, Ports: ports})
}

// HeadlessService returns the Service that gives each pod a DNS name, even before it is ready: the pods of one engine
// must find each other while the engine starts.
func HeadlessService(ws *v1beta1.Workspace) *corev1.Service {
	port := targetPort(ws)
	return service(ws, HeadlessName(ws), corev1.ServiceSpec{
		Type:                     corev1.ServiceTypeClusterIP,
		ClusterIP:                corev1.ClusterIPNone,
		PublishNotReadyAddresses: true,
		Selector:                 podSelector(ws),
		Ports:                    []corev1.ServicePort{servicePort(portHTTP, port, port)},
	})
}

func service(ws *v1beta1.Workspace, name string, spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service"},
		ObjectMeta: objectMeta(ws, name),
		Spec:       spec,
	}
}

func servicePort(name string, port, target int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(target)}
}

// targetPort returns 5000, the port of every server of a Workspace. If a template declares only other ports, its server
// listens on its port "http" or on its only port.
func targetPort(ws *v1beta1.Workspace) int32 {
	if ws.Inference == nil || ws.Inference.Template == nil {
		return v1beta1.EnginePort
	}
	var declared []corev1.ContainerPort
	for _, container := range ws.Inference.Template.Spec.Containers {
		declared = append(declared, container.Ports...)
	}
	for _, port := range declared {
		if port.ContainerPort == v1beta1.EnginePort {
			return v1beta1.EnginePort
		}
	}
	for _, port := range declared {
		if port.Name == portHTTP {
			return port.ContainerPort
		}
	}
	if len(declared) == 1 {
		return declared[0].ContainerPort
	}
	return v1beta1.EnginePort
}

// SetService returns the endpoint of an InferenceSet: port 80 of the first pod of each of its Workspaces, once the pod
// is ready. Each Workspace gives its pods the label that the Service selects.
//
// The inference must be that of the set's Workspaces: after a rollback, it differs from the spec's.
func SetService(set *v1beta1.InferenceSet, inference *v1beta1.InferenceSpec) *corev1.Service {
	target := targetPort(&v1beta1.Workspace{Inference: inference})
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name: set.Name, Namespace: set.Namespace,
			Labels: map[string]string{v1beta1.LabelInferenceSet: set.Name, v1beta1.LabelManagedBy: v1beta1.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1beta1.GroupVersion().WithKind(v1beta1.InferenceSetKind)),
			},
		},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: map[string]string{v1beta1.LabelInferenceSet: set.Name, appsv1.PodIndexLabel: "0"},
			Ports:    []corev1.ServicePort{servicePort(portHTTP, v1beta1.ServicePort, target)},
		},
	}
}
