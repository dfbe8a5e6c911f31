// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
)

// TuningMethod is a way to fine-tune: lora or qlora; case is ignored.
//
// +kubebuilder:validation:MaxLength=63
type TuningMethod string

// TuningSpec describes a fine-tuning job. This version accepts it and buys nothing.
type TuningSpec struct {
	// preset names the base model. Immutable.
	// +optional
	Preset *PresetSpec `json:"preset,omitempty"`
	// method is lora or qlora. Immutable.
	// +optional
	Method TuningMethod `json:"method,omitempty"`
	// config names a ConfigMap in the Workspace's namespace with the key training_config.yaml.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Config string `json:"config,omitempty"`
	// input is the source of the training data. Required.
	// +optional
	Input *DataSource `json:"input,omitempty"`
	// output is the destination of the result. Required.
	// +optional
	Output *DataDestination `json:"output,omitempty"`
}

// DataDestination is a destination of a result: exactly one of volumeSource and image.
type DataDestination struct {
	// volumeSource is a volume to write to.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Volume *corev1.VolumeSource `json:"volumeSource,omitempty"`
	// VolumeError is the reason if a present volumeSource could not be read; then Volume is empty.
	VolumeError string `json:"-"`
	// image is an image reference to push to.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image string `json:"image,omitempty"`
	// imagePushSecret names the Secret for pushing image.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ImagePushSecret string `json:"imagePushSecret,omitempty"`
}
