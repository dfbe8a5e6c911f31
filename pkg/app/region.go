// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/sku"
)

// pricing is the region for prices. If the cluster's region is unknown, region is empty, and unknown has the
// reason.
type pricing struct{ region, unknown string }

// pricingFor returns the administrator's region, or else the region in the labels of the cluster's nodes.
func pricingFor(ctx context.Context, live client.Reader, o options.Controller, known *catalog.Catalog) (pricing, error) {
	if o.Region != "" {
		return pricing{region: o.Region}, nil
	}
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := live.List(ctx, nodes); err != nil {
		return pricing{}, fmt.Errorf("detecting the region of the nodes: %w", err)
	}
	return pricingOf(nodes.Items, func(region string) bool { return isPriced(known, o.Clouds, region) }), nil
}

// pricingOf returns the region of all labelled nodes, if it is only one and has prices.
func pricingOf(nodes []metav1.PartialObjectMetadata, isPriced func(region string) bool) pricing {
	seen := map[string]bool{}
	for i := range nodes {
		if region := nodes[i].Labels[corev1.LabelTopologyRegion]; region != "" {
			seen[region] = true
		}
	}
	regions := slices.Sorted(maps.Keys(seen))
	switch {
	case len(regions) == 0:
		return pricing{unknown: "no node has the label " + corev1.LabelTopologyRegion}
	case len(regions) > 1:
		return pricing{unknown: "its nodes are in " + strings.Join(regions, " and ")}
	case !isPriced(regions[0]):
		return pricing{unknown: fmt.Sprintf("its nodes are in %s, but the catalogue has no prices for that region", regions[0])}
	default:
		return pricing{region: regions[0]}
	}
}

// isPriced reports whether any machine type of the clouds has a price in a region.
func isPriced(known *catalog.Catalog, clouds []string, region string) bool {
	return slices.ContainsFunc(known.SKUs(), func(s sku.SKU) bool {
		_, isSold := s.Prices[region]
		return isSold && (len(clouds) == 0 || slices.Contains(clouds, s.Cloud))
	})
}
