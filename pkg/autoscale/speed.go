// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import "math"

// Curve is a line through observations of an engine: its number of requests and its time per token. An engine with more
// requests is slower. The weight of old observations fades. The zero value has no observations.
type Curve struct {
	// The fields are weighted sums of 1, x, y, x² and xy.
	Count, X, Y, XX, XY float64
}

// fading is the factor by which one observation reduces the weight of earlier ones.
const fading = 0.995

func (c Curve) observed(x, y float64) Curve {
	if !(x > 0) || !(y > 0) || math.IsInf(x, 0) || math.IsInf(y, 0) {
		return c
	}
	return Curve{
		Count: c.Count*fading + 1, X: c.X*fading + x, Y: c.Y*fading + y, XX: c.XX*fading + x*x, XY: c.XY*fading + x*y,
	}
}

// slowdown returns the time per token with then requests, divided by the time with now requests. It returns 1 while
// there are too few observations.
func (c Curve) slowdown(now, then float64) float64 {
	const least, spread = 5, 1e-3
	if c.Count < least || !(now > 0) || !(then > 0) {
		return 1
	}
	x, y := c.X/c.Count, c.Y/c.Count
	variance := c.XX/c.Count - x*x
	if !(variance > spread*x*x) {
		return 1
	}
	slope := math.Max(0, (c.XY/c.Count-x*y)/variance)
	// The line is less reliable far from the observations. So the time per token is at least 5 % of the mean, and the
	// ratio is from 1/4 to 4.
	at := func(n float64) float64 { return math.Max(y+slope*(n-x), y*0.05) }
	ratio := at(then) / at(now)
	return math.Min(math.Max(ratio, 0.25), 4)
}
