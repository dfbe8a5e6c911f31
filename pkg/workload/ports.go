// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
)

// Names of the engine's ports.
const (
	portHTTP     = "http"
	portKVEvents = "kv-events"
	portGroup    = "group"
)

// weightsPort is the port where the agent reports its progress. In a group, only peers may reach it.
const weightsPort = 8090

// ProbePort is the agents' port that everybody may reach. PeerPort is the port only for their peers.
const (
	ProbePort = 8091
	PeerPort  = weightsPort
)

func enginePorts(command engine.Command) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	if command.HealthPath != "" {
		ports = append(ports, containerPort(portHTTP, v1beta1.EnginePort))
	}
	if command.OpenPort > 0 {
		ports = append(ports, containerPort(portGroup, int32(command.OpenPort)))
	}
	if command.KVEventsPort > 0 {
		ports = append(ports, containerPort(portKVEvents, int32(command.KVEventsPort)))
	}
	return ports
}

func containerPort(name string, port int32) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: port, Protocol: corev1.ProtocolTCP}
}

func httpProbe(path string, port int32) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)},
	}}
}
