// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

// layerBytes holds the bytes of a layer of one kind.
type layerBytes struct {
	count int
	first bool
	// Tensor parallelism cuts split, cuts keyValue by key and value heads, and does not cut replicated. experts are cut
	// like split, or whole experts are spread.
	split, keyValue, replicated, experts float64
	kvHeads, expertCount                 int
	// dense and expert are the widths of a batch within the layer. topK is the number of experts per token.
	dense, expert, topK int
	// low is the size of an adapter.
	low lowRank
}

// all returns the bytes of a layer on one GPU.
func (l *layerBytes) all() float64 { return l.split + l.experts + l.keyValue + l.replicated }

// on returns the bytes of a layer on each GPU. If the experts are spread unevenly, it is the GPU with most of them.
func (l *layerBytes) on(c cut) float64 {
	return l.split/float64(c.tp) + l.experts*l.expertShare(c) + l.keyValue*l.keyValueShare(c.tp) + l.replicated
}

// expertShare returns each GPU's part of the experts.
func (l *layerBytes) expertShare(c cut) float64 {
	if c.experts == 0 || l.expertCount == 0 {
		return 1 / float64(c.tp)
	}
	return float64(ceilDiv(l.expertCount, c.experts)) / float64(l.expertCount)
}

// keyValueShare returns each GPU's part of the key and value heads.
func (l *layerBytes) keyValueShare(tp int) float64 {
	if l.kvHeads == 0 {
		return 1 / float64(tp)
	}
	return float64(ceilDiv(l.kvHeads, tp)) / float64(l.kvHeads)
}

// share returns how many layers of this kind a stage has, if it has stage layers out of all. It assumes that no stage
// gets more than an even part of a rare, heavy kind, rounded up: pipelines can be cut so.
func (l *layerBytes) share(stage, all, pp int) int {
	return min(ceilDiv(l.count*stage, all), max(ceilDiv(l.count, pp), l.count*stage/all), l.count)
}

// ceilDiv divides and rounds up.
func ceilDiv(n, by int) int {
	return (n + by - 1) / by
}
