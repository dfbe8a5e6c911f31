// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Gateway are the settings for gateways of the Gateway API with its inference extension.
type Gateway struct {
	// Routers is the Service of the routers' port for gateways; empty if no gateway uses them.
	Routers types.NamespacedName
	// Gateway is the Gateway for which each InferenceSet gets an HTTPRoute; empty for none.
	Gateway types.NamespacedName
	// MatchModelNames: the routes also match the names of models, which several sets may have.
	MatchModelNames bool
}

// IsEnabled reports whether InferenceSets get pools.
func (g *Gateway) IsEnabled() bool { return g.Routers.Name != "" }

func (g *Gateway) bind(flags *flag.FlagSet) {
	flags.Func("gateway-routers", "Service with the routers' port for gateways, as NAMESPACE/NAME: each InferenceSet gets an InferencePool, "+
		"and the routers are its endpoint picker; default: no pools", func(v string) error { return named(v, &g.Routers) })
	flags.Func("gateway", "Gateway for which each InferenceSet gets an HTTPRoute, as NAMESPACE/NAME; needs --gateway-routers; default: no routes",
		func(v string) error { return named(v, &g.Gateway) })
	flags.BoolVar(&g.MatchModelNames, "gateway-match-model-names", false,
		"the routes match not only NAMESPACE:NAME in the header X-Gateway-Model-Name, but also the names of the InferenceSet and its models; "+
			"several InferenceSets may share these names")
}

func (g *Gateway) validate() []error {
	if !g.IsEnabled() && (g.Gateway.Name != "" || g.MatchModelNames) {
		return []error{errors.New("--gateway and --gateway-match-model-names need --gateway-routers")}
	}
	return nil
}

// named reads NAMESPACE/NAME.
func named(v string, into *types.NamespacedName) error {
	namespace, name, ok := strings.Cut(v, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not of the form NAMESPACE/NAME", v)
	}
	*into = types.NamespacedName{Namespace: namespace, Name: name}
	return nil
}
