// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine turns a plan into the command line of an inference server: ordered flags in exec
// form, environment and probe path. One package below it per engine.
//
// It decides flags: which of the user's are legal for the engine's version, which win, and what the
// rest deserve (a warning or an error). It must not know Kubernetes objects, machines' prices or how
// weights arrive.
package engine

import (
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Input is what a command line is made from.
type Input struct {
	// Data is what the catalogue says about the engine.
	Data catalog.Engine
	Plan planner.Plan
	// ModelDir is where the artifact's files lie.
	ModelDir string
	// ServedNames are the names that the endpoint answers to, the first one first.
	ServedNames []string
	// Config is the user's ConfigMap, Args are the flags of inference.engine.args; Args win.
	Config Config
	Args   map[string]string
	// Env are the variables of inference.engine.env, in order.
	Env []EnvVar
	// Port to listen on.
	Port int
}

// Command is how to start an engine.
type Command struct {
	// Args in order, in exec form; the image's entrypoint is kept.
	Args []string
	// Env in order.
	Env []EnvVar
	// HealthPath answers 200 when the engine can serve.
	HealthPath string
	// KVEventsPort publishes the events of the KV cache; 0 where the engine publishes none.
	KVEventsPort int
	// Warnings in sentences: flags that were asked for and dropped or replaced.
	Warnings []string
}

// EnvVar is one environment variable.
type EnvVar struct{ Name, Value string }

// Setting is one flag with its value, by the name that the catalogue lists it under. The value of a
// bool is "true" or "false".
type Setting struct{ Name, Value string }
