// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adapters has the list of a running engine's adapters. The controller writes it into an annotation of the pod,
// and the agent reads it as a file.
//
// It decides which lists an engine may get one after the other. It must not know Kubernetes, engines or files.
package adapters

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// most is the largest number of adapters in a list: twice the limit of the Workspace's field, because removed adapters
// leave the list a little later.
const most = 20

// Adapter is an adapter and its source: either a repository of the hub or an image in a registry.
type Adapter struct {
	Name string `json:"name"`
	// Repository is ORG/NAME, or ORG/NAME@REVISION.
	Repository string `json:"repository,omitempty"`
	Image      string `json:"image,omitempty"`
	// Path of the files within the source; empty means the source itself.
	Path string `json:"path,omitempty"`
}

// IsPinned reports whether the source always has the same files.
func (a Adapter) IsPinned() bool {
	_, digest, _ := strings.Cut(a.Image, "@sha256:")
	_, revision, _ := strings.Cut(a.Repository, "@")
	return regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(digest) || regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(revision)
}

// List is the content of the file.
type List struct {
	// Adapters are those to serve, in the order of the manifest.
	Adapters []Adapter `json:"adapters"`
	// Gone are the adapters that this pod served earlier.
	Gone []Adapter `json:"gone,omitempty"`
}

// Pending is the content of the file until the controller has written the first list.
const Pending = "pending"

// IsPending reports whether the controller has not written a list yet.
func IsPending(text string) bool { return text == "" || text == Pending }

// Encode returns the file's content.
func (l List) Encode() string {
	out, _ := json.Marshal(l) // strings always have an encoding
	return string(out)
}

// Decode reads the file's content, and checks every name that becomes a path.
func Decode(text string) (List, error) {
	var out List
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		return List{}, fmt.Errorf("decoding the list of adapters: %w", err)
	}
	if len(out.Adapters) > most {
		return List{}, fmt.Errorf("the list has %d adapters: at most %d are allowed", len(out.Adapters), most)
	}
	seen, valid := map[string]bool{}, regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	for _, a := range out.Adapters {
		switch {
		case !valid.MatchString(a.Name) || strings.Contains(a.Name, ".."):
			return List{}, fmt.Errorf("the list has an adapter named %q: use lower-case letters, digits, dashes and dots", a.Name)
		case seen[a.Name]:
			return List{}, fmt.Errorf("the list has adapter %q twice", a.Name)
		case (a.Repository == "") == (a.Image == ""):
			return List{}, fmt.Errorf("adapter %q needs either a repository or an image", a.Name)
		case a.Path != "" && !filepath.IsLocal(a.Path):
			return List{}, fmt.Errorf("adapter %q has path %q, which leads out of its source", a.Name, a.Path)
		}
		seen[a.Name] = true
	}
	return out, nil
}

// mostGone bounds the size of an annotation.
const mostGone = 500

// errReused is the reason why a running engine cannot serve a name.
var errReused = errors.New("has served other files under this name")

// Next returns the list with other adapters. The error is permanent for this pod: an engine keeps the cache of prompts
// by the name of an adapter (vLLM issues 30931 and 42125). With other files under a name that it has served, it would
// answer with a mixture of two adapters.
func (l List) Next(want []Adapter) (List, error) {
	out := List{Adapters: slices.Clone(want)}
	for _, a := range want {
		if i := Index(l.Adapters, a.Name); i >= 0 && l.Adapters[i] != a {
			return List{}, fmt.Errorf("the engine %w: %s", errReused, a.Name)
		}
		if i := Index(l.Gone, a.Name); i >= 0 && (l.Gone[i] != a || !a.IsPinned()) {
			return List{}, fmt.Errorf("the engine %w: %s", errReused, a.Name)
		}
	}
	for _, a := range slices.Concat(l.Gone, l.Adapters) {
		if Index(want, a.Name) < 0 {
			out.Gone = append(out.Gone, a)
		}
	}
	if len(out.Gone) > mostGone {
		return List{}, fmt.Errorf("the engine has served more than %d adapters", mostGone)
	}
	slices.SortFunc(out.Gone, func(a, b Adapter) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Keep adds the adapters of a former list that are still in use, and reports whether there are any.
func (l List) Keep(former List, inUse []string) (List, bool) {
	out, isDelayed := List{Adapters: slices.Clone(l.Adapters)}, false
	for _, a := range former.Adapters {
		if Index(l.Adapters, a.Name) < 0 && slices.Contains(inUse, a.Name) {
			out.Adapters, isDelayed = append(out.Adapters, a), true
		}
	}
	for _, a := range l.Gone {
		if Index(out.Adapters, a.Name) < 0 {
			out.Gone = append(out.Gone, a)
		}
	}
	return out, isDelayed
}

// Index returns the index of an adapter by its name, or -1.
func Index(list []Adapter, name string) int {
	return slices.IndexFunc(list, func(a Adapter) bool { return a.Name == name })
}

// StatePath is the route at the endpoint of a pod with the states of its adapters.
const StatePath = "/modelberth/adapters"

// RefusedHeader is on the answer 502 of an agent whose engine refused the connection, so the request did not reach it.
const RefusedHeader = "X-Modelberth-Refused"

// ReadyPath is the route at the endpoint of a pod for its readiness: the engine's health, and OK only with the adapters.
const ReadyPath = "/modelberth/ready"

// State has the states of the listed adapters.
type State struct {
	// Loaded are the names of the engine's adapters, sorted.
	Loaded []string `json:"loaded"`
	// Failed has the last problem of each other one that could not be fetched or loaded.
	Failed map[string]string `json:"failed,omitempty"`
}
