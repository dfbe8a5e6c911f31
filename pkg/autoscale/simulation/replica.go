// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"container/heap"
	"math"
	"sort"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// Speed is the speed of one replica as the planner predicts it.
type Speed struct {
	// Points has the time per token by the number of concurrent sequences, in ascending order.
	Points []Point
	// PromptSeconds and PromptSecondsPerToken give the time until the first token on an idle replica: a fixed part, and a
	// part per token of the prompt.
	PromptSeconds, PromptSecondsPerToken float64
	// Seats is how many sequences run at once. CacheTokens is how many tokens the KV cache holds.
	Seats       int
	CacheTokens float64
}

// Point is the time per token with one number of sequences.
type Point struct {
	Sequences float64
	Seconds   float64
}

// perToken returns the time per token with this many concurrent sequences.
func (s *Speed) perToken(sequences float64) float64 {
	points := s.Points
	i := sort.Search(len(points), func(i int) bool { return points[i].Sequences >= sequences })
	switch {
	case i == 0:
		return points[0].Seconds
	case i == len(points):
		return points[len(points)-1].Seconds
	}
	from, to := points[i-1], points[i]
	return from.Seconds + (to.Seconds-from.Seconds)*(sequences-from.Sequences)/(to.Sequences-from.Sequences)
}

func (s *Speed) prompt(tokens int) float64 {
	return s.PromptSeconds + s.PromptSecondsPerToken*float64(tokens)
}

// ServiceTime returns the time of a request with this many concurrent sequences, without its wait.
func (s *Speed) ServiceTime(r Request, sequences float64) float64 {
	return s.prompt(r.Input) + float64(r.Output)*s.perToken(sequences)
}

// Full returns the number of concurrent sequences of a replica that is busy but has no queue: the largest with a
// predicted speed.
func (s *Speed) Full() float64 { return math.Max(1, s.Points[len(s.Points)-1].Sequences) }

// Each returns how many requests at once a policy gives each replica. Without a target for them, it is three quarters of
// Full.
func (s *Speed) Each(policy *autoscale.Policy) float64 {
	out := 0.75 * s.Full()
	for _, target := range policy.Targets {
		if target.Metric == autoscale.RequestsInFlight {
			out = math.Min(target.Value, s.Full())
		}
	}
	return math.Max(out, 1)
}

// replica is one engine: a queue, one prompt at a time, and sequences that share the engine equally. All sequences
// advance at the same speed, so one number is enough for their progress: the tokens that a sequence would have since
// the start. A sequence ends at a fixed value of this number.
type replica struct {
	speed *Speed
	// requested, ready and gone are moments in seconds; gone is infinite until the replica has ended.
	requested, ready, gone float64
	isReady, isDraining    bool

	queue    []*job
	prompts  []*job
	decoding progress
	tokens   float64
	cached   float64
	// at is the time of this state, promptEnd the end of the first prompt, and due the next event.
	at, promptEnd, due float64
	seen               observed
	// isKnown: there was a poll before. The first poll has no rates.
	isKnown bool
}

// job is a request on a replica.
type job struct {
	Request
	// index is the request's place in the trace.
	index           int
	first, admitted float64
	ends            float64
}

// observed has the sums since the last poll.
type observed struct {
	arrivals, firsts, ended int
	firstSeconds, service   float64
}

type progress []*job

func (p progress) Len() int           { return len(p) }
func (p progress) Less(i, j int) bool { return p[i].ends < p[j].ends }
func (p progress) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *progress) Push(x any) {
	if j, ok := x.(*job); ok {
		*p = append(*p, j)
	}
}

func (p *progress) Pop() any {
	last := len(*p) - 1
	out := (*p)[last]
	*p = (*p)[:last]
	return out
}

func (r *replica) running() int     { return len(r.prompts) + len(r.decoding) }
func (r *replica) outstanding() int { return len(r.queue) + r.running() }

// schedule sets the time of the next event of a ready replica. It follows each change.
func (r *replica) schedule() {
	r.due = math.Inf(1)
	if len(r.prompts) > 0 {
		r.due = r.promptEnd
	}
	if len(r.decoding) > 0 {
		left := r.decoding[0].ends - r.tokens
		r.due = math.Min(r.due, r.at+math.Max(left, 0)*r.speed.perToken(float64(r.running())))
	}
}

// advance moves the sequences to a time before the next event.
func (r *replica) advance(to float64) {
	if len(r.decoding) > 0 && to > r.at {
		r.tokens += (to - r.at) / r.speed.perToken(float64(r.running()))
	}
	r.at = to
}

// step handles the event of this moment. It calls first for a request that gets its first token.
func (r *replica) step(now float64, first func(*job)) {
	r.advance(now)
	if len(r.prompts) > 0 && r.promptEnd <= now {
		j := r.prompts[0]
		r.prompts = r.prompts[1:]
		j.first, j.ends = now, r.tokens+float64(j.Output)
		r.seen.firsts++
		r.seen.firstSeconds += now - j.At
		heap.Push(&r.decoding, j)
		first(j)
		r.begin(now)
	}
	const rounding = 1e-9
	for len(r.decoding) > 0 && r.decoding[0].ends <= r.tokens+rounding*math.Max(1, r.tokens) {
		j := r.decoding[0]
		heap.Pop(&r.decoding)
		r.cached -= j.cache()
		r.seen.ended++
		r.seen.service += now - j.admitted
	}
	r.admit(now)
	r.schedule()
}

// cache returns the tokens of a request in the KV cache, in the middle of its answer.
func (j *job) cache() float64 { return float64(j.Input) + float64(j.Output)/2 }

func (r *replica) accept(now float64, j *job) {
	r.advance(now)
	r.seen.arrivals++
	r.queue = append(r.queue, j)
	r.admit(now)
	r.schedule()
}

// admit takes requests from the queue while there are seats and the KV cache has room. A single request always fits.
func (r *replica) admit(now float64) {
	for len(r.queue) > 0 && r.running() < r.speed.Seats {
		j := r.queue[0]
		if r.cached+j.cache() > r.speed.CacheTokens && r.running() > 0 {
			return
		}
		r.queue = r.queue[1:]
		r.cached += j.cache()
		j.admitted = now
		r.prompts = append(r.prompts, j)
		if len(r.prompts) == 1 {
			r.begin(now)
		}
	}
}

// begin starts the first waiting prompt.
func (r *replica) begin(now float64) {
	if len(r.prompts) > 0 {
		r.promptEnd = now + r.speed.prompt(r.prompts[0].Input)
	}
}
