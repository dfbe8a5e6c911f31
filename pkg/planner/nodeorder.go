// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/usd"
)

// byNodes orders options on existing nodes. Options that hold the target come first, then the objective decides, then
// the user's preferred nodes. Then the least loss for others decides: fewer nodes, less GPU memory, fewer GPUs, no
// InfiniBand, fewer idle GPUs.
func byNodes(d demand) func(a, b *option) int {
	return func(a, b *option) int {
		return cmp.Or(
			boolOrder(!a.layout.lowered, !b.layout.lowered),
			bySpeed(d, a, b),
			boolOrder(a.preferred(), b.preferred()),
			cmp.Compare(a.nodes, b.nodes),
			cmp.Compare(a.memoryGiB(), b.memoryGiB()),
			cmp.Compare(a.gpus, b.gpus),
			boolOrder(a.machine.NetworkGBs == 0, b.machine.NetworkGBs == 0),
			cmp.Compare(a.machine.GPUs, b.machine.GPUs),
			slices.Compare(a.nodeNames, b.nodeNames),
		)
	}
}

// bySpeed orders options on existing nodes by the objective. Their price is 0, so more tokens per second means more
// tokens per dollar.
func bySpeed(d demand, a, b *option) int {
	m, ok := d.(*modelDemand)
	known := func(o *option) bool { return o.layout.pace.TPOT > 0 }
	switch {
	case !ok:
		return 0
	case m.optimizeFor == v1beta1.OptimizeForLatency:
		return cmp.Or(boolOrder(known(a), known(b)), cmp.Compare(a.layout.pace.TPOT, b.layout.pace.TPOT))
	case m.optimizeFor == v1beta1.OptimizeForThroughput:
		return cmp.Compare(b.layout.pace.OutputTokensPerSecond, a.layout.pace.OutputTokensPerSecond)
	default:
		return 0
	}
}

// besideNodes explains why an option is no better than the best one, which is on existing nodes.
func besideNodes(d demand, best, other *option) string {
	switch {
	case other.nodeNames == nil && other.price < 0:
		return "must be bought, and its price is not known; the plan's nodes exist already"
	case other.nodeNames == nil:
		return fmt.Sprintf("must be bought for %s; the plan's nodes exist already", usd.PerHour(other.price))
	case other.layout.lowered && !best.layout.lowered:
		return other.layout.holdsLess(best)
	case bySpeed(d, best, other) != 0 && other.layout.pace.TPOT == 0:
		return "its speed is not known"
	case bySpeed(d, best, other) != 0:
		return fmt.Sprintf("slower: %.3g ms per token and %.3g tokens/s instead of %.3g and %.3g", other.layout.pace.TPOT,
			other.layout.pace.OutputTokensPerSecond, best.layout.pace.TPOT, best.layout.pace.OutputTokensPerSecond)
	case best.preferred() != other.preferred():
		return "resource.preferredNodes names other nodes"
	case other.nodes != best.nodes:
		return fmt.Sprintf("takes %s, the plan takes %d", count(other.nodes, "node"), best.nodes)
	case other.memoryGiB() > best.memoryGiB():
		return fmt.Sprintf("takes %.0f GiB of GPU memory from others, the plan takes %.0f", other.memoryGiB(), best.memoryGiB())
	case other.gpus != best.gpus:
		return fmt.Sprintf("uses %s, the plan uses %d", count(other.gpus, "GPU"), best.gpus)
	case (other.machine.NetworkGBs > 0) != (best.machine.NetworkGBs > 0):
		return "has InfiniBand, which the plan does not need"
	case other.machine.GPUs != best.machine.GPUs:
		return fmt.Sprintf("leaves more GPUs idle: it has %s free, the plan's node has %d", count(other.machine.GPUs, "GPU"), best.machine.GPUs)
	default:
		return "equally good, but its name sorts later"
	}
}
