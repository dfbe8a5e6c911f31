// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
)

// howToList is the command that produces --nodes.
const howToList = "kubectl get nodes,pods --all-namespaces --output=json"

// nodesThere has the existing nodes, and the requests of pods by node.
type nodesThere struct {
	nodes []corev1.Node
	uses  map[string][]existing.Use
}

// readNodes reads a list of nodes and pods.
func readNodes(file string, stdin io.Reader) (*nodesThere, error) {
	data, err := readFile(file, stdin)
	if err != nil {
		return nil, usageError("--nodes: %w", err)
	}
	out, err := parseNodes(data)
	if err != nil {
		return nil, usageError("--nodes %s: %w; write the file with %s", file, err, howToList)
	}
	return out, nil
}

func parseNodes(data []byte) (*nodesThere, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	out := &nodesThere{uses: map[string][]existing.Use{}}
	for i, item := range list.Items {
		if err := out.add(item); err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	if len(out.nodes) == 0 {
		return nil, errors.New("holds no node")
	}
	return out, nil
}

// add adds a node or a pod, and skips other objects.
func (n *nodesThere) add(item json.RawMessage) error {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(item, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "Node":
		var node corev1.Node
		if err := json.Unmarshal(item, &node); err != nil {
			return err
		}
		n.nodes = append(n.nodes, node)
	case "Pod":
		var pod corev1.Pod
		if err := json.Unmarshal(item, &pod); err != nil {
			return err
		}
		if use, holds := existing.UseOf(&pod); holds {
			n.uses[pod.Spec.NodeName] = append(n.uses[pod.Spec.NodeName], use)
		}
	}
	return nil
}

// list returns all nodes.
func (n *nodesThere) list(context.Context) ([]corev1.Node, error) { return n.nodes, nil }

// Of returns the requests of pods on nodes.
func (n *nodesThere) Of(nodes []string) ([]existing.Use, bool) {
	var out []existing.Use
	for _, node := range nodes {
		out = append(out, n.uses[node]...)
	}
	return out, true
}

// missesNodes refuses a Workspace for existing nodes if no nodes are known.
func (o *planOptions) missesNodes(ws *v1beta1.Workspace) error {
	if o.there != nil || ws.Resource.EffectiveNodeSource() != v1beta1.NodeSourceExisting {
		return nil
	}
	return &exitError{code: codeInfeasible, err: fmt.Errorf("the manifest allows only existing nodes (resource.placement.nodeSource is Existing, or a labelSelector is set "+
		"without instanceType, placement.instanceTypes or placement.capacityTypes), and this command reads no cluster: run %s > FILE, "+
		"then plan with --nodes FILE", howToList)}
}
