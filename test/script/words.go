// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"cmp"
	_ "embed" // the clouds' words
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

//go:embed words.yaml
var wordsFile []byte

// Ending is the end of a refused claim.
type Ending string

// The endings; words.yaml explains each.
const (
	Delete Ending = "delete"
	Keep   Ending = "keep"
	Error  Ending = "error"
)

// Refusal is a cloud's words instead of a machine.
type Refusal struct {
	Ending  Ending `json:"ending"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// words are an entry of words.yaml.
type words struct {
	Cloud   Cloud   `json:"cloud,omitempty"`
	Outcome Outcome `json:"outcome"`
	Kind    string  `json:"kind,omitempty"`
	Ending  Ending  `json:"answer"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message"`
	Then    string  `json:"then,omitempty"`
}

// vocabulary reads words.yaml. This package's tests check its form.
func vocabulary() ([]words, error) {
	var all []words
	if err := yaml.UnmarshalStrict(wordsFile, &all); err != nil {
		return nil, fmt.Errorf("decoding words.yaml: %w", err)
	}
	return all, nil
}

// kinds returns a cloud's possible words for an outcome, its habit first.
func kinds(cloud Cloud, outcome Outcome) ([]words, error) {
	all, err := vocabulary()
	var out []words
	for _, w := range all {
		if w.Cloud == cloud && w.Outcome == outcome {
			out = append(out, w)
		}
	}
	return out, err
}

// checkKind returns an error with the existing kinds if a rule names another.
func (r Rule) checkKind(cloud Cloud) error {
	if !r.Outcome.Refuses() {
		return nil
	}
	cloud = cmp.Or(r.Cloud, cloud)
	known, err := kinds(cloud, r.Outcome)
	if err != nil {
		return err
	}
	var names []string
	for _, w := range known {
		if r.Kind == "" || r.Kind == w.Kind {
			return nil
		}
		names = append(names, w.Kind)
	}
	return fmt.Errorf("kind: %q is unknown to cloud %q for outcome %q: use one of %s, or leave it out",
		r.Kind, cloud, r.Outcome, cmp.Or(list(names), "none"))
}

// said returns the rule's entry. Every parsed rule has one.
func (r Rule) said() words {
	known, _ := kinds(r.Cloud, r.Outcome)
	for _, w := range known {
		if r.Kind == "" || r.Kind == w.Kind {
			return w
		}
	}
	return words{Ending: Error, Message: "refused"}
}

// isRemembered reports whether the cloud recognises the claim, regardless of the rule's state by then.
func (r Rule) isRemembered() bool { return r.Outcome.Refuses() && r.said().Then != "" }

// refusal returns the cloud's words about an offer to a claim on its first request, or a later one.
func (r Rule) refusal(offer Offer, again bool) Refusal {
	said := r.said()
	if again {
		return Refusal{Ending: Delete, Message: said.Then}
	}
	ending, reason := said.Ending, cmp.Or(r.Reason, said.Reason)
	if ending == Error && r.Reason != "" {
		ending = Keep // only a kept claim can show a reason
	}
	if r.Message != "" {
		return Refusal{Ending: ending, Reason: reason, Message: r.Message}
	}
	fill := strings.NewReplacer("{sku}", offer.SKU, "{zone}", offer.Zone, "{capacityType}", offer.CapacityType,
		"{family}", family(offer.SKU))
	return Refusal{Ending: ending, Reason: reason, Message: fill.Replace(said.Message)}
}

// join makes one sentence of a cloud's words about several offers in one attempt.
func (c Cloud) join(messages []string) string {
	joined := strings.Join(messages, "; ")
	if c == AWS {
		return "with fleet error(s), " + joined
	}
	return joined
}

// family resembles Azure's quota name for a machine type: the type's name without its processors.
func family(sku string) string {
	name := strings.ReplaceAll(strings.TrimPrefix(sku, "Standard_"), "_", "")
	return "standard" + regexp.MustCompile(`^([A-Z]+)\d+`).ReplaceAllString(name, "$1") + "Family"
}

// FaultCondition returns the condition of a node with broken GPUs.
func (r Rule) FaultCondition() Condition {
	usual := Condition{
		Type: "AcceleratedHardwareReady", Status: metav1.ConditionFalse,
		Reason: "NvidiaXID79Error", Message: "GPU has fallen off the bus",
	}
	if r.Cloud == Azure || r.Cloud == AzureARM || r.Cloud == GPUProvisioner {
		usual.Type = "kubernetes.azure.com/NodeHealthy"
	}
	return Condition{
		Type:    cmp.Or(r.Condition.Type, usual.Type),
		Status:  cmp.Or(r.Condition.Status, usual.Status),
		Reason:  cmp.Or(r.Condition.Reason, usual.Reason),
		Message: cmp.Or(r.Condition.Message, usual.Message),
	}
}

// EvictionCondition returns the condition of a node with an announced end; nil if the cloud's provisioner gives the
// claim up instead, with events.
func (r Rule) EvictionCondition() *Condition {
	if r.Cloud != Azure && r.Cloud != AzureARM && r.Cloud != GPUProvisioner {
		return nil
	}
	return &Condition{
		Type: "PreemptionScheduled", Status: metav1.ConditionTrue,
		Reason: "PreemptionScheduled", Message: "the machine is scheduled for preemption",
	}
}

// Apply sets the condition on a node, and reports whether the node changed.
func (c Condition) Apply(node *corev1.Node, now metav1.Time) bool {
	want := corev1.NodeCondition{
		Type: corev1.NodeConditionType(c.Type), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	for i, have := range node.Status.Conditions {
		if have.Type != want.Type {
			continue
		}
		if have.Status == want.Status && have.Reason == want.Reason {
			return false
		}
		node.Status.Conditions[i] = want
		return true
	}
	node.Status.Conditions = append(node.Status.Conditions, want)
	return true
}

// Combine derives the claim's end from a cloud's refusals of several offers in one attempt: one keeping refusal is
// enough to keep it. All is all messages in one sentence.
func Combine(cloud Cloud, said []Refusal) (verdict Refusal, all string) {
	var messages []string
	verdict.Ending = Delete
	for _, refusal := range said {
		messages = append(messages, refusal.Message)
		if refusal.Ending == Keep || refusal.Ending == Error && verdict.Ending == Delete {
			verdict = refusal
		}
	}
	all = cloud.join(messages)
	if verdict.Ending != Keep {
		verdict.Message = all
	}
	return verdict, all
}
