// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Consumer is the program that reads the events of the KV cache, such as a router or an endpoint picker. Only an
// administrator may configure it, because the events contain the token ids of prompts. Its text is
// NAMESPACE/LABEL=VALUE,LABEL=VALUE.
type Consumer struct {
	// Namespace is the namespace of its pods; empty if there is no consumer.
	Namespace string
	// PodLabels are the labels of all its pods; never empty if Namespace is set.
	PodLabels map[string]string
}

// IsNamed reports whether there is a consumer. Without one, engines publish no events.
func (c *Consumer) IsNamed() bool { return c.Namespace != "" }

// String returns the text of the flag.
func (c *Consumer) String() string {
	if !c.IsNamed() {
		return ""
	}
	return c.Namespace + "/" + k8slabels.Set(c.PodLabels).String()
}

// Set parses the text of the flag.
func (c *Consumer) Set(text string) error {
	namespace, selector, _ := strings.Cut(text, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || selector == "" {
		return fmt.Errorf("%q does not select pods; an example is router-system/app=router", text)
	}
	set, err := k8slabels.ConvertSelectorToLabelsMap(selector)
	if err != nil {
		return fmt.Errorf("%q does not select pods: %w", text, err)
	}
	c.Namespace, c.PodLabels = namespace, set
	return nil
}

// Type returns the type of the flag for help texts.
func (c *Consumer) Type() string { return "string" }

// peer selects the pods of the consumer.
func (c *Consumer) peer() networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.Namespace}},
		PodSelector:       &metav1.LabelSelector{MatchLabels: maps.Clone(c.PodLabels)},
	}
}
