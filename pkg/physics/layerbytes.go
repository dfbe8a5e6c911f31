// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

// layerBytes holds the bytes of a layer of one kind.
type layerBytes struct {
	count int
	first bool
	// split is cut by tensor parallelism, keyValue by key and value heads, replicated not at all; experts are
	// cut like split, or spread whole.
	split, keyValue, replicated, experts float64
	kvHeads, expertCount                 int
	// The widths of a batch within the layer.
	dense, expert, topK int
	// low is the addition of an adapter.
	low lowRank
}

// all is a layer on one GPU.
func (l *layerBytes) all() float64 { return l.split + l.experts + l.keyValue + l.replicated }

// on returns the bytes of a layer on each GPU: the one with most experts if they are uneven.
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

// share is how many layers of a kind a stage holds of a number of layers. Stages need not be cut where a
// rare and heavy kind would come out uneven.
func (l *layerBytes) share(stage, all, pp int) int {
	return min(ceilDiv(l.count*stage, all), max(ceilDiv(l.count, pp), l.count*stage/all), l.count)
}

// ceilDiv divides and rounds up.
func ceilDiv(n, by int) int {
	return (n + by - 1) / by
}
