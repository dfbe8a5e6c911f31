// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/agent"
)

// The agent accepts all flags in rendered pods: a pod with other flags would never start. The agent must not import the
// package that renders them.
func TestRenderedArguments(t *testing.T) {
	files, err := filepath.Glob("../workload/testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	agents := 0
	for _, file := range files {
		for _, set := range statefulSets(t, file) {
			members := set.Spec.Template.Spec
			for i := range members.InitContainers {
				container := &members.InitContainers[i]
				if container.Name != "weights" && container.Name != "commit" {
					continue
				}
				agents++
				env := environment(container)
				settings, err := agent.Parse(expanded(container.Args, env), func(name string) string { return env[name] }, io.Discard)
				if err != nil {
					t.Errorf("%s, StatefulSet %s: %v", file, set.Name, err)
				}
				checkGrace(t, file+", StatefulSet "+set.Name, &members, settings)
			}
		}
	}
	// Twelve models with a single pod, and three groups of a leader and workers. Some resolve a commit first.
	if want := 22; agents < want {
		t.Errorf("%d agents in %d files, want at least %d", agents, len(files), want)
	}
}

// checkGrace checks that a drain ends before the pod is killed.
func checkGrace(t *testing.T, where string, pod *corev1.PodSpec, s agent.Settings) {
	t.Helper()
	drains := s.Drain.Metrics != "" || s.Drain.Leader != ""
	if grace := float64(*pod.TerminationGracePeriodSeconds); drains && s.Drain.Timeout.Seconds() >= grace {
		t.Errorf("%s: the drain takes up to %s of a grace period of %v seconds", where, s.Drain.Timeout, grace)
	}
}

func statefulSets(t *testing.T, file string) []appsv1.StatefulSet {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var sets []appsv1.StatefulSet
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var set appsv1.StatefulSet
		if err := yaml.Unmarshal(document, &set); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if set.Kind == "StatefulSet" {
			sets = append(sets, set)
		}
	}
	return sets
}

// environment returns a container's environment. Facts from the kubelet are numbers. An annotation that exists only
// after failures is empty.
func environment(container *corev1.Container) map[string]string {
	env := map[string]string{}
	for _, variable := range container.Env {
		env[variable.Name] = variable.Value
		if variable.ValueFrom != nil {
			env[variable.Name] = "7"
		}
		if ref := variable.ValueFrom; ref != nil && ref.FieldRef != nil && strings.Contains(ref.FieldRef.FieldPath, "group-not-before") {
			env[variable.Name] = ""
		}
	}
	return env
}

// expanded returns arguments after the kubelet's expansion: $$ is a dollar, and $(NAME) an existing variable.
func expanded(args []string, env map[string]string) []string {
	reference := regexp.MustCompile(`\$\$|\$\([^)]*\)`)
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = reference.ReplaceAllStringFunc(arg, func(found string) string {
			if found == "$$" {
				return "$"
			}
			if value, known := env[found[2:len(found)-1]]; known {
				return value
			}
			return found
		})
	}
	return out
}
