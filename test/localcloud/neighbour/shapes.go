// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/test/script"
)

//go:embed shapes.yaml
var shapesYAML []byte

// Shape is a way to ask for a GPU machine.
type Shape struct {
	Name string `json:"name"`
	// Cloud is the script of its answers; none means everything works at once.
	Cloud json.RawMessage `json:"cloud,omitempty"`
	// Objects are the asking objects, in the order of their creation.
	Objects []unstructured.Unstructured `json:"objects,omitempty"`
}

// Scene is everything to measure.
type Scene struct {
	// Neighbours are the permanent NodePools.
	Neighbours []unstructured.Unstructured `json:"neighbours"`
	Shapes     []Shape                     `json:"shapes"`

	Templates any `json:"templates"`
}

// Load reads the scene, with the shapes of a matching name. The first of all is a cluster without a GPU machine: the
// others compare to it, so it is always among them.
func Load(matching *regexp.Regexp) (Scene, error) {
	var scene Scene
	if err := yaml.UnmarshalStrict(shapesYAML, &scene); err != nil {
		return Scene{}, fmt.Errorf("decoding shapes.yaml: %w", err)
	}
	var shapes []Shape
	for i, shape := range scene.Shapes {
		if shape.Cloud != nil {
			if _, err := script.Parse(shape.Cloud); err != nil {
				return Scene{}, fmt.Errorf("shapes.yaml: %q: cloud: %w", shape.Name, err)
			}
		}
		if i == 0 || matching.MatchString(shape.Name) {
			shapes = append(shapes, shape)
		}
	}
	scene.Shapes = shapes
	return scene, nil
}
