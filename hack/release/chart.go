// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Helm's media types of a chart in a registry, since version 3.8.
const (
	chartConfig  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	chartContent = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

const chartName = "modelberth"

// addChart packs the chart, as a file and as an artifact of a registry. The chart names this release's images by
// digest. It does not use helm package, which would add the time of the build.
func (r *release) addChart(context.Context) error {
	members, err := r.chartFiles()
	if err != nil {
		return err
	}
	packed, err := tarGzip(members)
	if err != nil {
		return err
	}
	if err := r.write(chartName+"-"+r.version+".tgz", packed); err != nil {
		return err
	}
	var metadata map[string]any
	for _, m := range members {
		if m.name == chartName+"/Chart.yaml" {
			if err := yaml.Unmarshal(m.data, &metadata); err != nil {
				return err
			}
		}
	}
	img, err := chartImage(metadata, packed)
	if err != nil {
		return err
	}
	return r.addImage("charts/"+chartName, r.version, img)
}

func chartImage(metadata map[string]any, packed []byte) (v1.Image, error) {
	config, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		mutate.Addendum{Layer: static.NewLayer(packed, chartContent), MediaType: chartContent})
	if err != nil {
		return nil, err
	}
	return &artifactImage{Image: img, config: config}, nil
}

// chartFiles returns the files of the chart in order, with the version and the images of this release.
func (r *release) chartFiles() ([]member, error) {
	var members []member
	err := eachFile(filepath.Join(r.top, "charts", chartName), func(name string, data []byte) (err error) {
		switch name {
		case "Chart.yaml":
			data, err = set(data, map[string]string{"version": r.version, "appVersion": r.version})
		case "values.yaml":
			data, err = set(data, r.values())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		members = append(members, member{path.Join(chartName, name), data, modeFile})
		return nil
	})
	return members, err
}

// values returns the defaults of a released chart, which differ from the source tree's.
func (r *release) values() map[string]string {
	out := map[string]string{"registry": r.registry}
	for _, content := range r.contents {
		repository, _, _ := strings.Cut(content.reference, ":")
		key := map[string]string{"modelberth-controller": "image", "modelberth-agent": "agentImage", "modelberth-router": "router.image"}[repository]
		if key != "" {
			out[key+".repository"], out[key+".digest"] = repository, content.digest.String()
		}
	}
	return out
}

// set replaces the values of scalars in a YAML document, by their paths. It changes no other byte.
func set(document []byte, values map[string]string) ([]byte, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(document, &root); err != nil {
		return nil, err
	}
	lines := bytes.Split(document, []byte("\n"))
	for key, value := range values {
		node := find(root.Content[0], strings.Split(key, "."))
		if node == nil || node.Kind != yamlv3.ScalarNode {
			return nil, fmt.Errorf("there is no value %s to replace", key)
		}
		line := lines[node.Line-1]
		lines[node.Line-1] = append(line[:node.Column-1:node.Column-1], strconv.Quote(value)...)
	}
	return bytes.Join(lines, []byte("\n")), nil
}

func find(node *yamlv3.Node, keys []string) *yamlv3.Node {
	if len(keys) == 0 || node.Kind != yamlv3.MappingNode {
		return node
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == keys[0] {
			return find(node.Content[i+1], keys[1:])
		}
	}
	return nil
}
