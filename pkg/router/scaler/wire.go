// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// service is the name of the protocol's service.
const service = "externalscaler.ExternalScaler"

// Messages of the protocol.
const (
	messageRef     = "ScaledObjectRef"
	messageActive  = "IsActiveResponse"
	messageSpec    = "MetricSpec"
	messageSpecs   = "GetMetricSpecResponse"
	messageRequest = "GetMetricsRequest"
	messageValue   = "MetricValue"
	messageValues  = "GetMetricsResponse"
)

// wire has the messages of KEDA's protocol, from the published contract of KEDA 2.17. The messages are few, and dynamic:
// KEDA's own module would add hundreds of modules to the build, and a generator would be one more tool.
// https://github.com/kedacore/keda/blob/v2.17.0/pkg/scalers/externalscaler/externalscaler.proto
type wire struct {
	messages protoreflect.MessageDescriptors
}

func newWire() (*wire, error) {
	const (
		text  = descriptorpb.FieldDescriptorProto_TYPE_STRING
		whole = descriptorpb.FieldDescriptorProto_TYPE_INT64
		float = descriptorpb.FieldDescriptorProto_TYPE_DOUBLE
	)
	metadata := message("ScalerMetadataEntry", field(1, "key", text), field(2, "value", text))
	metadata.Options = &descriptorpb.MessageOptions{MapEntry: new(true)}
	ref := message(messageRef,
		field(1, "name", text), field(2, "namespace", text), list(3, "scalerMetadata", messageRef+".ScalerMetadataEntry"))
	ref.NestedType = []*descriptorpb.DescriptorProto{metadata}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("externalscaler.proto"), Package: new("externalscaler"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			ref,
			message(messageActive, field(1, "result", descriptorpb.FieldDescriptorProto_TYPE_BOOL)),
			message(messageSpec, field(1, "metricName", text), field(2, "targetSize", whole), field(3, "targetSizeFloat", float)),
			message(messageSpecs, list(1, "metricSpecs", messageSpec)),
			message(messageRequest, nested(1, "scaledObjectRef", messageRef), field(2, "metricName", text)),
			message(messageValue, field(1, "metricName", text), field(2, "metricValue", whole), field(3, "metricValueFloat", float)),
			message(messageValues, list(1, "metricValues", messageValue)),
		},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("describing KEDA's protocol: %w", err)
	}
	return &wire{file.Messages()}, nil
}

func message(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
	return &descriptorpb.DescriptorProto{Name: &name, Field: fields}
}

func field(number int32, name string, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
	return &descriptorpb.FieldDescriptorProto{
		Name: &name, Number: &number, Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
	}
}

// nested is a field with a message.
func nested(number int32, name, of string) *descriptorpb.FieldDescriptorProto {
	out := field(number, name, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	out.TypeName = new(".externalscaler." + of)
	return out
}

// list is a repeated field.
func list(number int32, name, of string) *descriptorpb.FieldDescriptorProto {
	out := nested(number, name, of)
	out.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	return out
}

// empty returns a message without content.
func (w *wire) empty(name protoreflect.Name) *dynamicpb.Message {
	return dynamicpb.NewMessage(w.messages.ByName(name))
}

// get returns the value of a message's field.
func get(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(name))
}

func set(m protoreflect.Message, name protoreflect.Name, value protoreflect.Value) {
	m.Set(m.Descriptor().Fields().ByName(name), value)
}

// appended adds an element to a list, and returns it.
func appended(m protoreflect.Message, name protoreflect.Name) protoreflect.Message {
	return m.Mutable(m.Descriptor().Fields().ByName(name)).List().AppendMutable().Message()
}

// ref names a ScaledObject, with the metadata of its trigger.
type ref struct {
	name, namespace string
	metadata        map[string]string
}

func readRef(m protoreflect.Message) ref {
	out := ref{name: get(m, "name").String(), namespace: get(m, "namespace").String(), metadata: map[string]string{}}
	get(m, "scalerMetadata").Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		out.metadata[key.String()] = value.String()
		return true
	})
	return out
}

func writeRef(m protoreflect.Message, r *ref) {
	set(m, "name", protoreflect.ValueOfString(r.name))
	set(m, "namespace", protoreflect.ValueOfString(r.namespace))
	all := m.Mutable(m.Descriptor().Fields().ByName("scalerMetadata")).Map()
	for key, value := range r.metadata {
		all.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
	}
}

func (w *wire) active(isActive bool) *dynamicpb.Message {
	out := w.empty(messageActive)
	set(out, "result", protoreflect.ValueOfBool(isActive))
	return out
}
