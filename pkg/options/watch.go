// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Watch limits an installation to some namespaces.
type Watch struct {
	// Namespaces of the served Workspaces; empty means all.
	Namespaces []string
	// PodsOfNodes lets an installation for some namespaces watch the pods of all namespaces, to find the free room on
	// existing nodes.
	PodsOfNodes bool
}

func (w *Watch) bind(flags *flag.FlagSet) {
	flags.Func("watch-namespace", "namespace whose Workspaces are served; repeatable; default: all", w.addNamespace)
	flags.BoolVar(&w.PodsOfNodes, "watch-pods-of-nodes", false,
		"with --watch-namespace, also watch the pods of all namespaces; otherwise, no existing nodes are used")
}

func (w *Watch) addNamespace(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a namespace: %s", name, strings.Join(problems, "; "))
	}
	if !slices.Contains(w.Namespaces, name) {
		w.Namespaces = append(w.Namespaces, name)
	}
	return nil
}

// SeesNodes reports whether the controller can find the free room on existing nodes.
func (w *Watch) SeesNodes() bool { return len(w.Namespaces) == 0 || w.PodsOfNodes }

func (w *Watch) validate(backEnd string) []error {
	if backEnd == BackendExisting && !w.SeesNodes() {
		return []error{errors.New("--capacity-backend=existing with --watch-namespace requires --watch-pods-of-nodes: set that flag, " +
			"or choose another back end")}
	}
	return nil
}
