// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The API's limits of texts, in characters.
const (
	longestVerdict = 256
	longestWarning = 512
)

// Summary returns the plan in one line, for example 1 × Standard_NC24ads_A100_v4 (1 × A100-80).
func (p Plan) Summary() string {
	machines := fmt.Sprintf("%d × %s", p.Nodes, p.InstanceType)
	if len(p.NodeNames) > 0 {
		machines = existing(p.NodeNames)
	}
	switch p.GPUsPerNode {
	case 0:
		return machines
	case p.MachineGPUs:
		return fmt.Sprintf("%s (%d × %s)", machines, p.GPUsPerNode, p.Accelerator)
	default:
		return fmt.Sprintf("%s (%d of %d × %s)", machines, p.GPUsPerNode, p.MachineGPUs, p.Accelerator)
	}
}

// total returns the price of several machines; negative if unknown. It rounds to a millionth of a dollar, because sums
// of decimal prices are inexact in binary.
func total(price float64, nodes int) float64 {
	if price < 0 {
		return unpriced
	}
	return math.Round(price*float64(nodes)*1e6) / 1e6
}

// atLeastTenth rounds a lack of memory up to a tenth of a GiB, so it is never zero.
func atLeastTenth(gibs float64) string {
	return strconv.FormatFloat(max(0.1, math.Ceil(gibs*10)/10), 'f', 1, 64)
}

// apart formats two numbers with a number of decimals, or with up to three more if they would look the same.
func apart(a, b float64, decimals int) (first, second string) {
	for more := range 4 {
		first, second = strconv.FormatFloat(a, 'f', decimals+more, 64), strconv.FormatFloat(b, 'f', decimals+more, 64)
		if first != second {
			break
		}
	}
	return first, second
}

// decimal formats a number with at most two digits after the point.
func decimal(n float64) string { return strconv.FormatFloat(math.Round(n*100)/100, 'f', -1, 64) }

// count returns a number with its noun in singular or plural.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// distinct returns the names without empty ones and duplicates, sorted.
func distinct(names []string) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

// boolOrder puts true first.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// existing lists the names of existing nodes for a message.
func existing(nodeNames []string) string {
	const most = 4
	if len(nodeNames) == 1 {
		return "existing node " + nodeNames[0]
	}
	listed := strings.Join(nodeNames[:min(len(nodeNames), most)], ", ")
	if len(nodeNames) > most {
		listed += ", …"
	}
	return fmt.Sprintf("%d existing nodes %s", len(nodeNames), listed)
}
