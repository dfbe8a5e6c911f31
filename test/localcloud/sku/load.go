// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sku

import (
	_ "embed" // for the table of products
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed products.yaml
var productsYAML string

const (
	// missingPrice is the price of a size without one in its region. Azure's Karpenter provider writes the same, so
	// such a size is bought last.
	missingPrice = 999
	// spotShare is the price of a spot machine here, as a share of the on-demand price. There is no market to take a
	// price from; it only has to be less.
	spotShare = 0.4
	// systemDiskGiB is the disk of a machine without a local one, near the default of both large clouds' Karpenter
	// providers.
	systemDiskGiB = 128
)

// file is the part of a catalogue file read here. All other fields belong to the product.
type file struct {
	Cloud  string  `json:"cloud"`
	Region string  `json:"region"`
	SKUs   []entry `json:"skus"`
}

type entry struct {
	Name         string             `json:"name"`
	GPU          string             `json:"gpu"`
	GPUs         int                `json:"gpus"`
	Resource     string             `json:"resource"`
	VCPUs        int                `json:"vcpus"`
	MemoryGiB    int                `json:"memoryGiB"`
	LocalDiskGiB int                `json:"localDiskGiB"`
	Spot         bool               `json:"spot"`
	Zones        []string           `json:"zones"`
	Prices       map[string]float64 `json:"prices"`
}

type product struct {
	Product   string `json:"product"`
	MemoryMiB int    `json:"memoryMiB"`
}

// Load reads every catalogue file of a directory.
func Load(dir string) (Catalogue, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing the machine types in %s: %w", dir, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no *.yaml in %q: point --skus at the directory presets/skus of the source tree", dir)
	}
	catalogue := Catalogue{}
	for _, path := range paths { // Glob sorts
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading machine types: %w", err)
		}
		if err := catalogue.addFile(data); err != nil {
			return nil, fmt.Errorf("machine types of %s: %w", path, err)
		}
	}
	return catalogue, nil
}

// addFile adds the machine types of one file's contents.
func (c Catalogue) addFile(data []byte) error {
	var f file
	if err := yaml.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	if f.Region == "" {
		return errors.New("region is empty: name the region of the prices and zones")
	}
	var products map[string]product
	if err := yaml.UnmarshalStrict([]byte(productsYAML), &products); err != nil {
		return fmt.Errorf("decoding the table of GPU products: %w", err)
	}
	for i, e := range f.SKUs {
		if err := e.validate(); err != nil {
			return fmt.Errorf("skus[%d] %q: %w", i, e.Name, err)
		}
		if _, taken := c[e.Name]; taken {
			return fmt.Errorf("skus[%d] %q is listed twice", i, e.Name)
		}
		c[e.Name] = e.sku(f.Region, products[e.GPU])
	}
	return nil
}

func (e entry) validate() error {
	positive := map[string]int{"vcpus": e.VCPUs, "memoryGiB": e.MemoryGiB, "gpus": e.GPUs}
	for field, value := range positive {
		if value <= 0 {
			return fmt.Errorf("%s is %d, want more than 0", field, value)
		}
	}
	switch {
	case e.Name == "":
		return errors.New("name is empty")
	case !strings.Contains(e.Resource, "/"):
		return fmt.Errorf("resource is %q, want the GPUs' resource name, such as nvidia.com/gpu", e.Resource)
	case e.LocalDiskGiB < 0:
		return fmt.Errorf("localDiskGiB is %d, want 0 or more", e.LocalDiskGiB)
	}
	return nil
}

func (e entry) sku(region string, p product) SKU {
	price, priced := e.Prices[region]
	if !priced {
		price = missingPrice
	}
	prices := map[string]float64{OnDemand: price}
	if e.Spot {
		prices[Spot] = price * spotShare
	}
	zones := e.Zones
	if len(zones) == 0 {
		zones = []string{region + "-1", region + "-2", region + "-3"}
	}
	return SKU{
		Name: e.Name, Region: region, Zones: zones,
		VCPUs: e.VCPUs, MemoryGiB: e.MemoryGiB, DiskGiB: max(e.LocalDiskGiB, systemDiskGiB),
		GPUs: e.GPUs, Resource: e.Resource, Product: p.Product, MemoryMiB: p.MemoryMiB,
		Prices: prices,
	}
}
