// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/openai"
	"github.com/modelberth/modelberth/pkg/router/usage"
)

// Pool is the InferencePool that a proxy sends a request to. It has the replicas of one InferenceSet.
type Pool struct {
	// Namespace and Name identify the set.
	Namespace, Name string
	// Subset has the only replicas that the proxy can reach; nil if it reaches all.
	Subset []string
}

// ID returns NAMESPACE:NAME of the set.
func (p *Pool) ID() string { return p.Namespace + models.Separator + p.Name }

// Answer is an answer of the router itself.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// AnswerOf returns the answer with an error.
func AnswerOf(problem *openai.Error) *Answer {
	own := &answerWriter{header: http.Header{}}
	openai.Write(own, problem)
	return &Answer{Status: problem.Status, Header: own.header, Body: own.body.Bytes()}
}

// Picked is a request that a proxy forwards. It is not safe for concurrent use.
type Picked struct {
	exchange *exchange
	request  *http.Request
	recorder *recorder
	answer   *Answer
	isEnded  bool
}

// place chooses the replica.
func (x *exchange) place() *openai.Error {
	replicas := x.owner.ReplicasOf(x.fields.Model)
	if x.pool.Subset != nil {
		replicas = slices.DeleteFunc(slices.Clone(replicas), func(name string) bool { return !slices.Contains(x.pool.Subset, name) })
	}
	x.hold, x.placed = x.router.counters.Place(replicas, x.work), x.router.clock.Now()
	if x.hold == nil {
		return openai.Errorf(http.StatusServiceUnavailable, openai.CodeModelUnavailable,
			"the gateway reaches no ready replica of model %q yet: try again", x.fields.Model).After(retryFailed)
	}
	x.sent, x.isSent = len(x.text), true
	return nil
}

// Answer returns the router's own answer, or nil if the proxy has to forward the request.
func (p *Picked) Answer() *Answer { return p.answer }

// Replica returns the address of the chosen replica.
func (p *Picked) Replica() string { return p.exchange.hold.Replica }

// Body returns the body for the replica. It is valid until Forget.
func (p *Picked) Body() []byte { return p.exchange.text }

// Forget releases the memory for the body.
func (p *Picked) Forget() { p.exchange.forget() }

// Withheld returns the headers of the request that the replica must not get.
func (p *Picked) Withheld() []string { return withheld(p.exchange.router.settings.IsOpen) }

// Begin records the head of the replica's answer. It returns the headers that the client must not get.
func (p *Picked) Begin(status int, header http.Header) (withheld []string) {
	x := p.exchange
	answer := &http.Response{StatusCode: status, Header: header}
	isStream := isEventStream(answer)
	strips := x.strips && isStream && status == http.StatusOK
	x.answer = usage.NewReader(nil, isStream, strips)
	p.recorder.WriteHeader(status)
	for name := range header {
		if !passed[name] && !ofProxy(name) || strips && name == "Content-Length" {
			withheld = append(withheld, name)
		}
	}
	slices.Sort(withheld)
	return withheld
}

// ofProxy reports whether a header of an answer describes the connection. The proxy sets such headers itself.
func ofProxy(name string) bool {
	switch name {
	case "Connection", "Date", "Server", "Trailer", "Transfer-Encoding", "Via":
		return true
	}
	return strings.HasPrefix(name, "X-Envoy-")
}

// Take reads the next piece of the replica's answer, and returns the bytes that the client may get now.
func (p *Picked) Take(piece []byte, isLast bool) []byte {
	if p.exchange.answer == nil {
		return piece
	}
	out := p.exchange.answer.Take(piece, isLast)
	if len(out) > 0 {
		_, _ = p.recorder.Write(out) // it only counts
	}
	return out
}

// End releases the replica and the memory, and charges the client. Further calls have no effect.
func (p *Picked) End() {
	if p.isEnded {
		return
	}
	p.isEnded = true
	x := p.exchange
	x.forget()
	if x.hold != nil {
		x.hold.Release()
	}
	if p.recorder.status == 0 {
		p.recorder.status = http.StatusServiceUnavailable // as for a client of the router that leaves before the answer
		x.failed = openai.Errorf(http.StatusServiceUnavailable, openai.CodeClientClosed, "the gateway ended the request before its answer")
	}
	x.account(p.recorder, p.request)
}

// namespaces returns the namespaces that a name may refer to, in a pool or at the router's own address.
func (p *Pool) namespaces(table *models.Table, name string) []string {
	if p != nil {
		return []string{p.Namespace}
	}
	return table.Namespaces(name)
}

// lookUp returns the owner of a name, or nil. In a pool, only its set can be the owner, even if others claim the name,
// because the proxy reaches no other replicas.
func (x *exchange) lookUp(table *models.Table, name string) *models.Owner {
	if x.pool == nil {
		return table.Find(name, x.client.Sees)
	}
	owner := table.Set(x.pool.ID())
	if owner == nil || !x.client.Sees(owner.Namespace) ||
		name != owner.ID() && !slices.Contains(owner.Names, name) && !slices.Contains(owner.Loading, name) {
		return nil
	}
	return owner
}

// visible returns the models that the client may see here.
func (x *exchange) visible(table *models.Table) []models.Model {
	if x.pool == nil {
		return table.List(x.client.Sees)
	}
	owner := table.Set(x.pool.ID())
	if owner == nil || !x.client.Sees(owner.Namespace) {
		return nil
	}
	var out []models.Model
	for _, name := range slices.Sorted(slices.Values(slices.Concat(owner.Names, owner.Loading))) {
		out = append(out, models.Model{Name: name, Owner: owner})
	}
	return out
}

// answerWriter keeps an answer of the router itself, and ignores that of a replica.
type answerWriter struct {
	header    http.Header
	body      bytes.Buffer
	isIgnored bool
}

// Header implements http.ResponseWriter.
func (w *answerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The recorder has the status.
func (w *answerWriter) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(p []byte) (int, error) {
	if w.isIgnored {
		return len(p), nil
	}
	return w.body.Write(p)
}
