// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package comparison decides whether a new template of a model serves worse than the previous one. The input is the
// routers' counts of requests to each.
//
// It must not know who counts the requests, or what follows from the decision.
package comparison

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Path is where a router serves its Report. Audience is the audience of the tokens that it accepts there. The API server
// does not accept such a token, so a router that is taken over gains nothing from it.
const (
	Path     = "/comparisons"
	Audience = "modelberth-router-comparisons"
)

// Report has the counts of one router.
type Report struct {
	Sets []Set `json:"sets"`
}

// Set has the counts of an InferenceSet that has two templates.
type Set struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Template is the hash of the new template.
	Template string `json:"template"`
	Pair
}

// Pair has the counts of the two templates, since the numbers of replicas with each last changed.
type Pair struct {
	New      Counts `json:"new"`
	Previous Counts `json:"previous"`
}

// Counts are the requests that reached replicas with a template. Requests that the client cancelled, or got wrong, are
// not counted.
type Counts struct {
	Served int64 `json:"served"`
	// Failed requests got no connection, no whole answer, or an answer with a status of 500 or more, other than 501:
	// the engine lacks that function with any template.
	Failed int64 `json:"failed"`
	// FirstToken is the time to the first piece of a streamed answer, and PerToken the time for each further token.
	FirstToken Times `json:"firstToken"`
	PerToken   Times `json:"perToken"`
}

// Times summarize durations by their logarithms. Times of requests are skewed, and their logarithms far less.
type Times struct {
	Count int64 `json:"count"`
	// Logs and Squares are the sums of the natural logarithms of the seconds, and of the squares of these.
	Logs    float64 `json:"logs"`
	Squares float64 `json:"squares"`
}

// leastTime keeps the logarithms finite.
const leastTime = time.Microsecond

// Add adds one duration.
func (t *Times) Add(d time.Duration) {
	log := math.Log(max(d, leastTime).Seconds())
	t.Count++
	t.Logs += log
	t.Squares += log * log
}

// Plus returns the counts of both.
func (p Pair) Plus(other Pair) Pair {
	return Pair{New: p.New.plus(other.New), Previous: p.Previous.plus(other.Previous)}
}

func (c Counts) plus(other Counts) Counts {
	return Counts{
		Served: c.Served + other.Served, Failed: c.Failed + other.Failed,
		FirstToken: c.FirstToken.plus(other.FirstToken), PerToken: c.PerToken.plus(other.PerToken),
	}
}

func (t Times) plus(other Times) Times {
	return Times{Count: t.Count + other.Count, Logs: t.Logs + other.Logs, Squares: t.Squares + other.Squares}
}

// Requests returns the number of counted requests.
func (c Counts) Requests() int64 { return c.Served + c.Failed }

// mostCounted is more requests than a router ever answers. It keeps sums over routers from overflowing.
const mostCounted = 1 << 48

var errImpossible = errors.New("its counts are impossible")

// Check returns an error if the counts of a set are impossible.
func (s *Set) Check() error {
	for _, counts := range []Counts{s.New, s.Previous} {
		for _, n := range []int64{counts.Served, counts.Failed, counts.FirstToken.Count, counts.PerToken.Count} {
			if n < 0 || n > mostCounted {
				return fmt.Errorf("%s/%s: %w", s.Namespace, s.Name, errImpossible)
			}
		}
		for _, times := range []Times{counts.FirstToken, counts.PerToken} {
			n, most := float64(times.Count), math.Abs(math.Log(leastTime.Seconds()))*2
			isSpread := times.Squares*n >= times.Logs*times.Logs*(1-rounding)
			if times.Count > counts.Served || !(math.Abs(times.Logs) <= n*most) || !(times.Squares <= n*most*most) || !isSpread {
				return fmt.Errorf("%s/%s: %w", s.Namespace, s.Name, errImpossible)
			}
		}
	}
	return nil
}

// rounding is more than the relative error of a sum.
const rounding = 1e-6
