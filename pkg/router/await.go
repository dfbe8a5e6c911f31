// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"net/http"
	"time"

	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/openai"
)

// Waker requests replicas for an owner that has none. Wake returns at once.
type Waker interface{ Wake(owner *models.Owner) }

const (
	// keepAlive is the time between two comments to a client whose stream waits. Proxies close connections after 60 s
	// without traffic.
	keepAlive = 15 * time.Second
	// changeTimeout is how long a set may stay at zero replicas after the router wakes it. If its owner fixed the number at
	// 0, a longer wait would be in vain. It is also the longest wait for an adapter that a ready replica loads.
	changeTimeout = 30 * time.Second
)

// Outcomes, in metrics, of requests that waited.
const (
	outcomeStarted = "started"
	outcomeLoaded  = "loaded"
	outcomeFull    = "full"
	outcomeFailed  = "failed"
	outcomeGone    = "gone"
)

// mayWait reports whether requests wait for an owner whose ready replicas do not serve the model.
func (r *Router) mayWait(owner *models.Owner) bool {
	if len(owner.Replicas) > 0 { // they load an adapter
		return r.room.IsOpen()
	}
	return r.waker != nil && r.room.IsOpen() && owner.IsWakeable && !owner.Problem.Stalled
}

// await holds the request until a replica serves its model: an adapter that loads, or the first replica of a set. Until
// then, the request counts toward the limits of the room.
func (x *exchange) await(req *http.Request, text []byte) *openai.Error {
	if len(x.owner.ReplicasOf(x.fields.Model)) > 0 {
		return nil
	}
	r, owner := x.router, x.owner
	who := hold.Request{Model: owner.ID(), Key: x.client.Group(), Bytes: int64(len(text))}
	place, full := r.room.Enter(who)
	if place == nil {
		r.metrics.held.WithLabelValues(owner.ID(), outcomeFull).Inc()
		return openai.Errorf(http.StatusServiceUnavailable, openai.CodeModelUnavailable,
			"no replica of model %q answers yet, and the queue of requests for %s is full: try again", x.fields.Model, full).After(x.startsIn())
	}
	r.metrics.holding.Inc()
	defer x.share.await(forNothing)
	err, outcome := x.untilReady(req, place)
	place.Leave(outcome == outcomeStarted, r.clock.Now())
	r.metrics.holding.Dec()
	r.metrics.held.WithLabelValues(owner.ID(), outcome).Inc()
	return err
}

// untilReady waits for a replica. The key, the owner of the name and the owner's state may change meanwhile, so it
// looks them up again after each change.
func (x *exchange) untilReady(req *http.Request, place *hold.Place) (failed *openai.Error, outcome string) {
	now := x.router.clock
	expired, change, beat := now.NewTimer(x.router.room.Time()), now.NewTimer(changeTimeout), now.NewTicker(keepAlive)
	defer expired.Stop()
	defer change.Stop()
	defer beat.Stop()
	what := forNothing
	for {
		_, next := x.router.directory.Next() // before the lookups, so that no change is missed
		if err := x.identify(req); err != nil {
			return err, outcomeFailed
		}
		if err := x.find(req, nil); err != nil {
			return err, outcomeFailed
		}
		if len(x.owner.ReplicasOf(x.fields.Model)) > 0 {
			return nil, outcomeOf(what)
		}
		if next := waitOf(x.owner); next != what {
			what = next
			x.share.await(what)
			change.Reset(changeTimeout)
			if what == forReplica {
				place.AwaitStart(now.Now())
			}
		}
		if what == forReplica {
			x.router.waker.Wake(x.owner)
		}
		select {
		case <-next:
		case <-beat.C():
			x.comment()
		case <-change.C():
			if what == forAdapter {
				return unavailable(x.fields.Model, x.owner), outcomeFailed
			}
			if x.owner.IsAsleep {
				return x.notWoken(), outcomeFailed
			}
		case <-expired.C():
			return x.expired(), outcomeFailed
		case <-req.Context().Done():
			return openai.Errorf(statusClientClosed, openai.CodeClientClosed, "the client closed the connection"), outcomeGone
		}
	}
}

// waitOf returns the reason why a request for an owner waits. A set with a ready replica is not woken: no further
// replica would load an adapter sooner.
func waitOf(owner *models.Owner) wait {
	if len(owner.Replicas) > 0 {
		return forAdapter
	}
	return forReplica
}

// outcomeOf returns the outcome, in metrics, of a request that waited successfully. Only the time of a start says how
// long the next one takes.
func outcomeOf(what wait) string {
	if what == forAdapter {
		return outcomeLoaded
	}
	return outcomeStarted
}

// statusClientClosed is nginx's status for a closed connection. It appears only in metrics and the access log; no
// client gets it.
const statusClientClosed = 499

func (x *exchange) notWoken() *openai.Error {
	return openai.Errorf(http.StatusServiceUnavailable, openai.CodeModelUnavailable,
		"model %q has no replicas, and the router could not start one within %s: ask the owner of %s %s to raise spec.replicas",
		x.fields.Model, changeTimeout, x.owner.Kind, x.owner.ID()).After(retryStalled)
}

func (x *exchange) expired() *openai.Error {
	out := unavailable(x.fields.Model, x.owner).After(x.startsIn())
	out.Message += "; the request waited for " + x.router.room.Time().String()
	return out
}

// leastAdvice is the shortest Retry-After for a starting model. Without it, clients would retry every second once a
// start takes longer than the last one.
const leastAdvice = 5 * time.Second

// startsIn returns the Retry-After for a starting model, based on the model's last start. How long an adapter loads, the
// router does not record.
func (x *exchange) startsIn() time.Duration {
	if len(x.owner.Replicas) > 0 {
		return retryStarting
	}
	if left, ok := x.router.room.Estimate(x.owner.ID(), x.router.clock.Now()); ok {
		return max(leastAdvice, left)
	}
	return retryStarting
}

// comment keeps the connection of a stream alive. It sends the headers of the answer, so a later failure must be an
// event.
func (x *exchange) comment() {
	if !x.fields.Stream || !x.route.streams || x.pool != nil { // a proxy sends nothing before the answer
		return
	}
	header := x.writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	x.writer.begin()
	// Ignore the error: if the client has gone, the request's context ends.
	_, _ = io.WriteString(x.writer.ResponseWriter, ": the model is starting\n\n")
	_ = http.NewResponseController(x.writer).Flush()
}
