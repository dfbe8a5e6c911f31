// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/pkg/sku"
)

// gpusCommand is kubectl berth gpus.
type gpusCommand struct {
	catalogFlags
	output
}

func newGPUs(w World) *cobra.Command {
	c := &gpusCommand{}
	cmd := &cobra.Command{
		Use:     "gpus [TEXT]",
		Short:   "List the GPUs of the catalogue, with their names and aliases",
		Example: "  kubectl berth gpus h100",
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return c.run(w, strings.Join(args, "")) },
	}
	c.catalogFlags.bind(cmd, w)
	c.output.bind(cmd, false)
	return cmd
}

func (c *gpusCommand) run(w World, name string) error {
	known, err := c.load()
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(known.GPUs(), func(g sku.GPU) bool {
		return !hasText(name, append([]string{g.Name, g.Class}, g.Aliases...))
	})
	if c.forPrograms() {
		return c.data(w.Out, found)
	}
	rows := [][]string{{"NAME", "ACCELERATOR", "MEMORY", "BANDWIDTH", "BF16", "FP8", "CAPABILITY", "LINK", "ALIASES"}}
	for i := range found {
		g := &found[i]
		rows = append(rows, []string{
			g.Name, g.Class, gibs(g.MemoryGiB), gbs(g.BandwidthGBs), teraflops(g, "bf16"), teraflops(g, "fp8"),
			text(g.ComputeCapability), text(g.Link), text(strings.Join(g.Aliases, ",")),
		})
	}
	return table(w.Out, "", rows)
}

func teraflops(g *sku.GPU, format string) string {
	if g.PeakTFLOPs[format] == 0 {
		return none
	}
	return digits(g.PeakTFLOPs[format]) + " TFLOP/s"
}
