// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/usage"
)

// Metrics are the metrics of the router. Their labels contain names of objects and keys, never text from a client.
type Metrics struct {
	requests  *prometheus.CounterVec
	retries   *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	firstByte *prometheus.HistogramVec
	duration  *prometheus.HistogramVec
	holding   prometheus.Gauge
	held      *prometheus.CounterVec
	resumes   *prometheus.CounterVec
	canary    canaryMetrics
}

// canaryMetrics compare two templates of a model while one of them has a canary.
type canaryMetrics struct {
	requests  *prometheus.CounterVec
	firstByte *prometheus.HistogramVec
	perToken  *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	perTokenBuckets := []float64{.002, .005, .01, .015, .02, .03, .04, .05, .075, .1, .2, .5, 1}
	buckets := []float64{.005, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "modelberth_router_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		opts := prometheus.HistogramOpts{Name: "modelberth_router_" + name, Help: help, Buckets: buckets}
		return prometheus.NewHistogramVec(opts, labels)
	}
	m := &Metrics{
		requests:  counter("requests_total", "Requests by model, key and status.", "model", "key", "status"),
		retries:   counter("retries_total", "Requests sent to another replica after a failure.", "model"),
		tokens:    counter("tokens_total", "Tokens of prompts and answers, as the engines report them.", "model", "key", "kind"),
		firstByte: histogram("first_byte_seconds", "Time from a request to the first byte of its answer.", buckets, "model"),
		duration:  histogram("request_duration_seconds", "Time from a request to the end of its answer.", buckets, "model"),
		held:      counter("held_total", "Requests that waited for a first replica or an adapter, by outcome.", "model", "outcome"),
		resumes:   counter("resumes_total", "Streams whose replica was lost, by outcome: continued by another replica, or lost.", "model", "outcome"),
		canary: canaryMetrics{
			requests: counter("canary_requests_total", "Requests by template and status while a new template has a canary.",
				"model", "template", "status"),
			firstByte: histogram("canary_first_byte_seconds", "Time to the first byte of an answer, by template.",
				buckets, "model", "template"),
			perToken: histogram("canary_time_per_output_token_seconds", "Time per token of a streamed answer after its first byte, by template.",
				perTokenBuckets, "model", "template"),
		},
		holding: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "modelberth_router_held_requests", Help: "Requests that wait for a first replica or an adapter.",
		}),
	}
	for _, collector := range []prometheus.Collector{
		m.requests, m.retries, m.tokens, m.firstByte, m.duration, m.held, m.holding, m.resumes,
		m.canary.requests, m.canary.firstByte, m.canary.perToken,
	} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) retry(owner *models.Owner) { m.retries.WithLabelValues(owner.ID()).Inc() }

// recorder records the status, the size and the time of the first byte of an answer.
type recorder struct {
	http.ResponseWriter
	clock  clock.PassiveClock
	status int
	first  time.Time
	bytes  int64
	// body is the time of the first piece of the body, which may be long after the headers.
	body time.Time
	// hasBegun: comments were sent, and the headers with them.
	hasBegun bool
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// begin sends the headers of a stream before the answer has begun.
func (r *recorder) begin() {
	if r.status != 0 {
		return
	}
	r.status, r.hasBegun = http.StatusOK, true
	r.ResponseWriter.WriteHeader(http.StatusOK)
}

// WriteHeader records and sends the final status. After comments it does nothing, because the client has a status
// already.
func (r *recorder) WriteHeader(status int) {
	if r.hasBegun {
		return
	}
	if r.status == 0 && status >= http.StatusOK {
		r.status, r.first = status, r.clock.Now()
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if r.body.IsZero() {
		r.body = r.clock.Now()
	}
	if r.first.IsZero() {
		r.first = r.body
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// account charges the client for the tokens of the request, updates the metrics and writes a line of the access log.
func (x *exchange) account(w *recorder, req *http.Request) {
	now := x.router.clock.Now()
	model := ""
	if x.owner != nil {
		model = x.owner.ID()
	}
	used := x.used(w)
	x.share.leave(now)
	x.bill.Settle(now, used.Total())
	m := x.router.metrics
	m.requests.WithLabelValues(model, x.client.Group(), strconv.Itoa(x.status(w))).Inc()
	if model != "" && !w.first.IsZero() {
		m.firstByte.WithLabelValues(model).Observe(w.first.Sub(x.start).Seconds())
		m.duration.WithLabelValues(model).Observe(now.Sub(x.start).Seconds())
		m.tokens.WithLabelValues(model, x.client.Group(), "prompt").Add(float64(used.Prompt))
		m.tokens.WithLabelValues(model, x.client.Group(), "completion").Add(float64(used.Completion))
	}
	if model != "" {
		x.compare(w, req, used, now)
	}
	x.record(w, req, used, now)
}

// refused counts a refused connection for the template of its replica, although another replica may answer the request.
func (x *exchange) refused(replica string) {
	if x.work.Canary != nil {
		status := strconv.Itoa(http.StatusServiceUnavailable)
		x.router.metrics.canary.requests.WithLabelValues(x.owner.ID(), x.templateOf(replica), status).Inc()
		x.tally(replica, comparison.Counts{Failed: 1})
	}
}

// templateOf returns the template of a replica in metrics.
func (x *exchange) templateOf(replica string) string {
	if x.work.Canary.Has(replica) {
		return "new"
	}
	return "previous"
}

// compare counts a request for its template while the model has a canary.
func (x *exchange) compare(w *recorder, req *http.Request, used usage.Tokens, now time.Time) {
	if x.work.Canary == nil || x.hold == nil {
		return
	}
	if req.Context().Err() == nil || x.answer != nil && x.answer.IsWhole() { // else the client has left before
		x.tally(x.hold.Replica, x.outcome(w, used, now))
	}
	m, model, template := x.router.metrics.canary, x.owner.ID(), x.templateOf(x.hold.Replica)
	m.requests.WithLabelValues(model, template, strconv.Itoa(x.status(w))).Inc()
	if w.first.IsZero() {
		return
	}
	m.firstByte.WithLabelValues(model, template).Observe(w.first.Sub(x.start).Seconds())
	if x.fields.Stream && used.Completion > 1 {
		m.perToken.WithLabelValues(model, template).Observe(now.Sub(w.first).Seconds() / float64(used.Completion-1))
	}
}

// used returns the tokens of the request. It estimates them if the answer has no usage: a client may leave before the
// first byte, although the engine has already read its whole prompt.
func (x *exchange) used(w *recorder) usage.Tokens {
	estimate := usage.Tokens{Prompt: x.prompt}
	switch {
	case !x.isSent || isClientError(x.status(w)):
		return usage.Tokens{} // no engine worked on it
	case x.answer == nil:
		return estimate
	}
	used := x.answer.Tokens()
	// The answer's tokens are unknown in three cases: the answer broke off, the engine reports no usage, or the client
	// left a stream before its last event, which has the usage.
	if used == (usage.Tokens{}) || used.Completion == 0 && x.fields.Stream {
		used.Completion = int(w.bytes / bytesPerAnswerToken(x.fields.Stream))
	}
	if used.Prompt == 0 { // no prompt has 0 tokens
		used.Prompt = estimate.Prompt
	}
	return x.plausible(used)
}

// isClientError reports whether an engine refused a request without working on it.
func isClientError(status int) bool {
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError
}

// status returns the status for metrics and the log. If a stream failed after its headers, that is the status of the
// failure, although the client got 200.
func (x *exchange) status(w *recorder) int {
	if w.status == http.StatusOK && x.failed != nil {
		return x.failed.Status
	}
	return w.status
}

// promptExtra is the most tokens that an engine may add to a prompt, for its chat template and for images behind URLs.
const promptExtra = 1 << 16

// plausible limits the usage that an engine reports: the engine and the key may belong to different tenants, so the
// report is not trusted. A token has at least one byte of the body or of the answer.
func (x *exchange) plausible(used usage.Tokens) usage.Tokens {
	return usage.Tokens{
		Prompt:     min(used.Prompt, x.sent+promptExtra),
		Completion: int(min(int64(used.Completion), x.answer.Passed())),
	}
}

func (x *exchange) record(w *recorder, req *http.Request, used usage.Tokens, now time.Time) {
	attributes := []any{
		"path", x.route.path, "model", x.fields.Model, "key", x.client.Name(), "status", x.status(w), "bytes", w.bytes,
		"duration", now.Sub(x.start), "prompt_tokens", used.Prompt, "completion_tokens", used.Completion,
	}
	if x.owner != nil {
		attributes = append(attributes, "owner", x.owner.ID())
	}
	if x.hold != nil {
		attributes = append(attributes, "replica", x.hold.Replica)
	}
	if x.failed != nil {
		attributes = append(attributes, "code", x.failed.Code)
	}
	if req.Context().Err() != nil {
		attributes = append(attributes, "cancelled", true)
	}
	x.router.log.Info("request", attributes...)
}

// bytesPerAnswerToken returns the assumed bytes per token of an answer without usage. In a stream, each token is an
// event of about 200 bytes.
func bytesPerAnswerToken(isStream bool) int64 {
	if isStream {
		return 200
	}
	return 4
}
