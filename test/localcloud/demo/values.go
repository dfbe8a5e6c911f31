// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"path/filepath"
)

// If the local cloud's nodes and pods find things.
const (
	hubEndpoint = "http://hub.local:8081"
	// soldAs is the cloud of the machine types bought here.
	soldAs = "azure"
)

// chartValues are the chart's settings for the local cloud.
func chartValues(images []image, overlay string) (map[string]any, error) {
	byName := map[string]image{}
	for _, image := range images {
		byName[image.name] = image
	}
	for _, name := range []string{"controller", "agent", "llamacpp"} {
		if _, ok := byName[name]; !ok {
			return nil, fmt.Errorf("no image is named %s: give its file with --image", name)
		}
	}
	catalog, err := readOverlay(overlay)
	if err != nil {
		return nil, err
	}
	reference := func(name string) map[string]any {
		return map[string]any{"repository": byName[name].repository, "digest": byName[name].digest}
	}
	return map[string]any{
		"clouds":       []string{soldAs},
		"nodeClasses":  []map[string]string{{"group": "local.modelberth.dev", "kind": "LocalNodeClass", "name": "default"}},
		"image":        reference("controller"),
		"agentImage":   reference("agent"),
		"engineImages": engineImages(byName),
		"hub":          map[string]string{"endpoint": hubEndpoint},
		"catalog":      catalog,
		// The machines' network plug-in, ptp, ignores NetworkPolicies.
		"multiNode": "Allow",
		"logging":   map[string]string{"level": "debug"},
		// Hundreds of machines come at once, and they are free.
		"spending": map[string]any{"unlimited": true},
		// The machines' device plugin is a process and no DaemonSet, and scripts refuse in Azure's words.
		"capacity": map[string]any{"gpuPluginCheck": false, "wording": "karpenter-azure"},
	}, nil
}

// engineImages returns the references of the given engine images, by the engine's name.
func engineImages(byName map[string]image) map[string]string {
	out := map[string]string{}
	for _, engine := range []string{"llamacpp", "vllm"} {
		if image, given := byName[engine]; given {
			out[engine] = image.repository + "@" + image.digest
		}
	}
	return out
}

// readOverlay returns the files of the catalogue's additions by name.
func readOverlay(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing the catalogue's additions: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no YAML files: name a directory with files that describe the local model", dir)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the catalogue's additions: %w", err)
		}
		out[filepath.Base(file)] = string(text)
	}
	return out, nil
}
