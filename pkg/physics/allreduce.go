// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"math"
	"slices"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
)

// pcie is the default link of GPUs that their own link does not connect, and of links without measured points.
const pcie = "pcie4"

// reducer computes the time to sum a tensor over the GPUs of a stage.
type reducer struct {
	// table has the measured points; nil for one GPU.
	table *catalog.AllReduce
	// times is a factor on the table's times.
	times float64
}

// reducerOf looks up the table of a layout: the table of the GPUs' own link if it connects them all, or else of PCIe.
func reducerOf(gpu *sku.GPU, l *Layout, speed *catalog.Speed) reducer {
	if l.TP <= 1 {
		return reducer{}
	}
	link := gpu.Link
	if l.LinkedGPUs < l.TP && !isPCIe(link) {
		link = cmp.Or(gpu.HostLink, pcie)
	}
	out := reducer{times: 1}
	out.table = tableOf(link, l.TP, speed.AllReduce)
	if out.table == nil {
		out.table = tableOf(pcie, l.TP, speed.AllReduce)
	}
	if out.table == nil {
		return out
	}
	if l.TP > out.table.GPUs {
		out.times = float64(l.TP) / float64(out.table.GPUs)
	}
	if l.Nodes > 1 && l.TP*max(l.PP, 1)*max(l.DP, 1) < l.TP*l.Nodes {
		out.times *= speed.Hops.Across
	}
	return out
}

func isPCIe(link string) bool { return len(link) >= 4 && link[:4] == pcie[:4] }

// tableOf returns the table of a link for that many GPUs, or else for the next larger number, or else for the largest.
func tableOf(link string, gpus int, tables []catalog.AllReduce) *catalog.AllReduce {
	var best *catalog.AllReduce
	for i := range tables {
		t := &tables[i]
		if !slices.Contains(t.Links, link) {
			continue
		}
		switch {
		case best == nil,
			t.GPUs >= gpus && (best.GPUs < gpus || t.GPUs < best.GPUs),
			t.GPUs < gpus && best.GPUs < t.GPUs:
			best = t
		}
	}
	return best
}

// seconds returns the time to sum a number of bytes. Between measured points, the time is a power of the size. Above
// the last point, it is proportional to the size.
func (r *reducer) seconds(bytes float64) float64 {
	if r.table == nil {
		return 0
	}
	sizes, micros := r.table.Bytes, r.table.Micros
	last := len(sizes) - 1
	if last < 0 {
		return 0
	}
	at := micros[0]
	switch {
	case bytes >= sizes[last]:
		at = micros[last] * bytes / sizes[last]
	case bytes > sizes[0]:
		i := 0
		for bytes >= sizes[i+1] {
			i++
		}
		share := math.Log(bytes/sizes[i]) / math.Log(sizes[i+1]/sizes[i])
		at = micros[i] * math.Exp(share*math.Log(micros[i+1]/micros[i]))
	}
	return at * r.times * micro
}

// micro is a microsecond in seconds.
const micro = 1e-6
