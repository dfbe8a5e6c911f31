// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
)

// skusCommand is kubectl berth skus.
type skusCommand struct {
	catalogFlags
	output

	gpus     []string
	least    int
	maxPrice float64
	usable   bool
	spot     bool
}

func newSKUs(w World) *cobra.Command {
	c := &skusCommand{}
	cmd := &cobra.Command{
		Use:     "skus [TEXT]",
		Aliases: []string{"machines", "instance-types"},
		Short:   "List the machine types of the catalogue, cheapest first",
		Long: `List the machine types of the catalogue, cheapest first. With TEXT, list those with TEXT in their name.

Prices are for one region of each cloud: the region in --region, or the cloud's reference region.`,
		Example: `  kubectl berth skus --gpu H100-80 --usable
  kubectl berth skus --cloud azure --region westeurope --max-price 5
  kubectl berth skus p5 -o wide`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return c.run(w, strings.Join(args, "")) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.gpus, "gpu", nil, "only machines with one of these GPUs, such as H100-80,L40S")
	f.IntVar(&c.least, "min-gpus", 0, "only machines with at least this many GPUs")
	f.Float64Var(&c.maxPrice, "max-price", 0, "only machines at or below this price, in USD per hour")
	f.BoolVar(&c.usable, "usable", false, "only machines that the planner may choose")
	f.BoolVar(&c.spot, "spot", false, "only machines sold as spot")
	c.catalogFlags.bind(cmd, w)
	c.bindPlaces(cmd)
	c.output.bind(cmd, true)
	return cmd
}

// skuEntry is a machine type as programs read it.
type skuEntry struct {
	Name         string   `json:"name"`
	Cloud        string   `json:"cloud"`
	GPU          string   `json:"gpu,omitempty"`
	Accelerator  string   `json:"accelerator,omitempty"`
	GPUs         int      `json:"gpus,omitempty"`
	GPUMemoryGiB float64  `json:"gpuMemoryGiB,omitempty"`
	VCPUs        int      `json:"vcpus"`
	MemoryGiB    float64  `json:"memoryGiB"`
	LocalDiskGiB float64  `json:"localDiskGiB,omitempty"`
	LinkedGPUs   int      `json:"linkedGPUs,omitempty"`
	NetworkGBs   float64  `json:"networkGBs,omitempty"`
	Provisioners []string `json:"provisioners,omitempty"`
	QuotaFamily  string   `json:"quotaFamily,omitempty"`
	Region       string   `json:"region"`
	HourlyPrice  *float64 `json:"hourlyPrice,omitempty"`
	SpotPrice    *float64 `json:"spotHourlyPrice,omitempty"`
	Spot         bool     `json:"spot"`
	Reserved     bool     `json:"reserved,omitempty"`
	Unusable     string   `json:"unusable,omitempty"`
}

func (c *skusCommand) run(w World, name string) error {
	known, err := c.load()
	if err != nil {
		return err
	}
	where, err := c.place(known)
	if err != nil {
		return err
	}
	if c.maxPrice < 0 {
		return usageError("--max-price is %v: it must be a price above 0", c.maxPrice)
	}
	for _, gpu := range c.gpus {
		if !slices.ContainsFunc(known.GPUs(), func(g sku.GPU) bool { return isGPU(&g, gpu) }) {
			return unknownGPU(known, gpu)
		}
	}
	var entries []skuEntry
	for _, s := range known.SKUs() {
		if len(where) > 0 && !slices.Contains(where, s.Cloud) || !hasText(name, []string{s.Name}) {
			continue
		}
		if e := c.entry(known, &s); c.wants(known, &e) {
			entries = append(entries, e)
		}
	}
	slices.SortStableFunc(entries, byPrice)
	if c.forPrograms() {
		if entries == nil {
			entries = []skuEntry{}
		}
		return c.data(w.Out, entries)
	}
	return table(w.Out, "", c.rows(entries))
}

// byPrice sorts by price, with unknown prices last.
func byPrice(a, b skuEntry) int {
	switch {
	case a.HourlyPrice == nil || b.HourlyPrice == nil:
		return cmp.Compare(boolOrder(a.HourlyPrice != nil), boolOrder(b.HourlyPrice != nil))
	default:
		return cmp.Compare(*a.HourlyPrice, *b.HourlyPrice)
	}
}

func (c *skusCommand) entry(known *catalog.Catalog, s *sku.SKU) skuEntry {
	gpu, _ := known.GPU(s.GPU) // the catalogue checked that it exists; a machine may have no GPU
	region := cmp.Or(c.region, known.ReferenceRegion(s.Cloud))
	out := skuEntry{
		Name: s.Name, Cloud: s.Cloud, GPU: s.GPU, Accelerator: gpu.Class, GPUs: s.GPUs,
		GPUMemoryGiB: hundredths(gpu.MemoryGiB * float64(s.GPUs)), VCPUs: s.VCPUs, MemoryGiB: s.MemoryGiB,
		LocalDiskGiB: s.LocalDiskGiB, LinkedGPUs: s.LinkedGPUs, NetworkGBs: s.NetworkGBs, Provisioners: s.Provisioners,
		QuotaFamily: s.QuotaFamily, Region: region, Spot: s.Spot, Reserved: s.Reserved, Unusable: s.Unusable,
	}
	if price, priced := s.Prices[region]; priced {
		out.HourlyPrice = &price
	}
	if price, priced := s.SpotPrices[region]; priced {
		out.SpotPrice = &price
	}
	return out
}

// wants reports whether a machine type passes the filters.
func (c *skusCommand) wants(known *catalog.Catalog, e *skuEntry) bool {
	gpu, _ := known.GPU(e.GPU)
	switch {
	case len(c.gpus) > 0 && (e.GPUs == 0 || !slices.ContainsFunc(c.gpus, func(name string) bool { return isGPU(&gpu, name) })):
		return false
	case e.GPUs < c.least, c.usable && e.Unusable != "", c.spot && !e.Spot:
		return false
	default:
		return c.maxPrice == 0 || e.HourlyPrice != nil && *e.HourlyPrice <= c.maxPrice
	}
}

// isGPU reports whether a name stands for a GPU. It ignores case, and treats spaces as dashes.
func isGPU(g *sku.GPU, name string) bool {
	name = strings.Join(strings.Fields(name), "-")
	return strings.EqualFold(g.Class, name) || strings.EqualFold(g.Name, name) ||
		slices.ContainsFunc(g.Aliases, func(alias string) bool { return strings.EqualFold(alias, name) })
}

func (c *skusCommand) rows(entries []skuEntry) [][]string {
	rows := [][]string{{"NAME", "CLOUD", "GPUS", "GPU MEMORY", "VCPUS", "MEMORY", "$/H", "REGION"}}
	if c.wide() {
		rows[0] = append(rows[0], "SPOT $/H", "DISK", "LINKED", "RDMA/GPU", "QUOTA FAMILY")
	}
	if !c.usable {
		rows[0] = append(rows[0], "NOT USABLE")
	}
	for i := range entries {
		e := &entries[i]
		gpus := none
		if e.GPUs > 0 {
			gpus = fmt.Sprintf("%d × %s", e.GPUs, e.Accelerator)
		}
		row := []string{
			e.Name, e.Cloud, gpus, gibs(e.GPUMemoryGiB), number(e.VCPUs), gibs(e.MemoryGiB), priceOf(e.HourlyPrice), e.Region,
		}
		if c.wide() {
			row = append(row, spotPrice(e), gibs(e.LocalDiskGiB), number(e.LinkedGPUs), gbs(e.NetworkGBs), text(e.QuotaFamily))
		}
		if !c.usable {
			row = append(row, e.Unusable)
		}
		rows = append(rows, row)
	}
	return rows
}

func gibs(value float64) string {
	if value == 0 {
		return none
	}
	return digits(value) + " GiB"
}

func gbs(value float64) string {
	if value == 0 {
		return none
	}
	return digits(value) + " GB/s"
}

func priceOf(price *float64) string {
	if price == nil {
		return none
	}
	return dollars(*price)
}

// spotPrice returns the spot price, or a mark for spot machines without a known price.
func spotPrice(e *skuEntry) string {
	if e.SpotPrice == nil && e.Spot {
		return "?"
	}
	return priceOf(e.SpotPrice)
}
