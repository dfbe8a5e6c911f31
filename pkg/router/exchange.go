// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/body"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/openai"
	"github.com/modelberth/modelberth/pkg/router/resume"
	"github.com/modelberth/modelberth/pkg/router/tokens"
	"github.com/modelberth/modelberth/pkg/router/usage"
)

// HeaderSession is a request header. Requests with the same value go to the same replica, unless it has too much work.
const HeaderSession = "X-Session-Id"

// maxModelName is the longest accepted name of a model, in bytes. Names on the Hugging Face Hub have 96 characters at
// most.
const maxModelName = 256

// exchange is one request and its state in the router.
type exchange struct {
	router *Router
	route  route
	start  time.Time
	sender
	fields body.Fields
	owner  *models.Owner
	work   balance.Request
	// content is the client's body, and text is the body for the replica.
	content *content
	text    []byte
	// prompt is the estimated size of the prompt, in tokens.
	prompt int
	// strips: the router removes the usage from the answer, because only the router requested it.
	strips bool
	attempt
	answer *usage.Reader
	failed *openai.Error
	writer *recorder
}

// sender is who sent the request.
type sender struct {
	client *limit.Client
	// user is the client's account, if it has no key.
	user *tokens.User
	// bill is the charge of the client; nil until the request is admitted.
	bill *limit.Bill
	// pool restricts the request to one set; nil for the router's own address.
	pool *Pool
	// share is the request's part in the demand of its set; nil before it is admitted, and without a set.
	share *share
}

// attempt is the state of the request at a replica.
type attempt struct {
	// isFresh: the request must use a new connection.
	isFresh bool
	// isSent: an engine may have begun to work on the request.
	isSent bool
	// isRefused: the last replica refused the connection.
	isRefused bool
	// placed is when the last replica was chosen.
	placed time.Time
	hold   *balance.Hold
	// plan continues the answer if its replica dies; nil if the router must not continue it.
	plan *resume.Plan
	// outgoing is the request from the proxy. dead is the replica that died; the continuation avoids it.
	outgoing *http.Request
	dead     string
	// sent is the size of the body for the replica, in bytes.
	sent int
}

// ServeHTTP answers a request.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	recorder := &recorder{ResponseWriter: w, clock: r.clock}
	x := &exchange{router: r, start: r.clock.Now(), sender: sender{client: r.anybody}, writer: recorder}
	// The deadline applies even after a refusal, because the server then reads the rest of the body. Ignore the error: a
	// writer without deadlines has no connection.
	_ = http.NewResponseController(w).SetReadDeadline(x.start.Add(r.settings.BodyTimeout))
	defer x.account(recorder, req) // also if a replica dies in mid-answer: the proxy then panics
	defer x.forget()
	isDone, err := x.prepare(recorder, req)
	if err == nil && !isDone {
		err = x.forward(recorder, req)
	}
	if err != nil {
		x.failed = err
		if recorder.hasBegun {
			openai.WriteEvent(recorder, err)
			return
		}
		openai.Write(recorder, err)
	}
}

// Comparisons returns the counts of the models whose replicas have two templates.
func (r *Router) Comparisons() comparison.Report { return r.tallies.report(r.directory.Models()) }

// Demand returns the work of the set with an ID.
func (r *Router) Demand(id string) Demand { return r.demands.of(id, r.clock.Now()) }

// Pick performs the steps of a request up to the choice of its replica, for a proxy that forwards the request itself. The
// request can reach only the set of the pool. The caller must End the result.
func (r *Router) Pick(req *http.Request, pool *Pool) *Picked {
	own := &answerWriter{header: http.Header{}}
	out := &Picked{request: req, recorder: &recorder{ResponseWriter: own, clock: r.clock}}
	x := &exchange{router: r, start: r.clock.Now(), sender: sender{client: r.anybody, pool: pool}, writer: out.recorder}
	out.exchange = x
	isPicked := false
	defer func() {
		if !isPicked { // a step panics
			out.recorder.status = http.StatusInternalServerError
			out.End()
		}
	}()
	isDone, err := x.prepare(out.recorder, req)
	if err == nil && !isDone {
		err = x.place()
	}
	if err != nil {
		x.failed = err
		openai.Write(out.recorder, err)
	}
	if err != nil || isDone {
		out.answer = &Answer{Status: out.recorder.status, Header: own.header, Body: own.body.Bytes()}
	}
	own.isIgnored = true // from here on, the proxy has the answer
	isPicked = true
	return out
}

// prepare performs the steps before the choice of a replica. If it is done, it has answered the request.
func (x *exchange) prepare(w http.ResponseWriter, req *http.Request) (isDone bool, failed *openai.Error) {
	r := x.router
	switch method := allowed(req.URL.Path); {
	case method == "":
		return false, openai.Errorf(http.StatusNotFound, openai.CodeUnknownRoute, "the router does not serve path %.100q", req.URL.Path)
	case method != req.Method:
		w.Header().Set("Allow", method)
		return false, openai.Errorf(http.StatusMethodNotAllowed, openai.CodeUnknownRoute,
			"path %s accepts only method %s", req.URL.Path, method)
	}
	if err := x.identify(req); err != nil {
		return false, err
	}
	if req.Method == http.MethodGet {
		return true, x.list(w, req)
	}
	x.route = routes[req.URL.Path]
	x.isFresh = x.route.keepsState
	content, err := r.read(w, req, x.client)
	if err != nil {
		return false, err
	}
	x.content = content
	for _, step := range []func(*http.Request, []byte) *openai.Error{x.parse, x.find, x.admit, x.await, x.edit} {
		if err := step(req, content.text); err != nil {
			return false, err
		}
	}
	return false, nil
}

// forget releases the memory for the body.
func (x *exchange) forget() {
	if x.content != nil {
		x.content.done()
	}
	x.content, x.text, x.fields.Prompt = nil, nil, nil
}

func (x *exchange) parse(req *http.Request, text []byte) *openai.Error {
	var err error
	if x.route.isForm {
		x.fields, err = body.Form(req.Header.Get("Content-Type"), text)
	} else {
		x.fields, err = body.JSON(text)
	}
	x.prompt = x.fields.PromptTokens()
	if err == nil && len(x.fields.Model) <= maxModelName {
		return nil
	}
	out := openai.Errorf(http.StatusBadRequest, openai.CodeInvalidBody, "the name in \"model\" has more than %d bytes", maxModelName)
	if err != nil {
		out.Message = err.Error()
	}
	if errors.Is(err, body.ErrNoModel) {
		out.Code, out.Param = openai.CodeMissingModel, "model"
	}
	return out
}

// find sets the owner of the model. For a client, models in namespaces that it may not use do not exist.
func (x *exchange) find(req *http.Request, _ []byte) *openai.Error {
	name, table := x.fields.Model, x.router.directory.Models()
	if err := x.see(req, x.pool.namespaces(table, name)); err != nil {
		return err
	}
	owner := x.lookUp(table, name)
	if owner == nil {
		out := openai.Errorf(http.StatusNotFound, openai.CodeModelNotFound, "there is no model %q: GET /v1/models lists the available models", name)
		out.Param = "model"
		return out
	}
	x.owner = owner
	if !x.client.Allows(owner.Served(name), owner.ID()) {
		return openai.Errorf(http.StatusForbidden, openai.CodeModelNotAllowed,
			"key %q may not use model %q: ask the administrator to add the model to the key's models", x.client.Name(), name)
	}
	if len(owner.ReplicasOf(name)) == 0 && !x.router.mayWait(owner) {
		return unavailable(name, owner)
	}
	return nil
}

// Values of Retry-After for a model without replicas.
const (
	retryStarting = 15 * time.Second
	retryStalled  = 5 * time.Minute
)

// unavailable returns the error for a model without replicas. It has the reason of the owner's condition, but not the
// message, which is meant for the owner.
func unavailable(name string, owner *models.Owner) *openai.Error {
	if len(owner.Replicas) > 0 {
		whose := "the Workspace"
		if owner.Kind == models.KindSet {
			whose = "its Workspaces"
		}
		return openai.Errorf(http.StatusServiceUnavailable, openai.CodeModelUnavailable,
			"no ready replica of %s %s has loaded %q yet: see status.adapters of %s",
			owner.Kind, owner.ID(), name, whose).After(retryStarting)
	}
	state, wait := "the model is starting", retryStarting
	switch {
	case owner.Problem.Stalled:
		state, wait = "the model cannot start until its owner acts ("+owner.Problem.Reason+")", retryStalled
	case owner.Problem.Reason != "":
		state = "the model is starting (" + owner.Problem.Reason + ")"
	}
	return openai.Errorf(http.StatusServiceUnavailable, openai.CodeModelUnavailable,
		"no replica of model %q answers: %s; see the conditions of %s %s", name, state, owner.Kind, owner.ID()).After(wait)
}

func (x *exchange) admit(*http.Request, []byte) *openai.Error {
	bill, excess := x.client.Admit(x.router.clock.Now(), x.prompt)
	if excess != nil {
		return openai.Errorf(http.StatusTooManyRequests, openai.CodeRateLimit,
			"client %q has reached its limit of %s: try again later", x.client.Group(), excess.Limit).After(excess.Wait)
	}
	x.bill = bill
	if x.owner.Kind == models.KindSet {
		x.share = x.router.demands.enter(x.owner.ID(), x.fields.Tokens(), x.router.clock.Now())
	}
	return nil
}

// edit prepares the body for the replica, and the inputs for the choice of the replica.
func (x *exchange) edit(req *http.Request, text []byte) *openai.Error {
	x.text = text
	x.work = balance.Request{
		Tokens: x.fields.Tokens(), Prefixes: x.fields.Prefixes(x.client.Name()), Canary: x.owner.Canary,
	}
	if session := req.Header.Get(HeaderSession); session != "" {
		x.work.Session = sessionKey(x.client.Name(), session)
	}
	if x.route.isForm { // forms are not edited
		return nil
	}
	var change body.Edit
	if served := x.owner.Served(x.fields.Model); served != x.fields.Model {
		change.Model = served
	}
	if x.route.salted {
		change.CacheSalt = x.client.CacheSalt()
		if change.CacheSalt != "" {
			change.CacheSalt += saltSuffix(x.fields.CacheSalt)
		}
	}
	x.strips = x.route.streamsUsage && x.fields.Stream && !x.fields.IncludeUsage
	change.IncludeUsage = x.strips
	if err := x.content.reserve(int64(len(text)) + maxEdit); err != nil {
		return err
	}
	edited, err := x.fields.Apply(text, change)
	if err != nil {
		return openai.Errorf(http.StatusBadRequest, openai.CodeInvalidBody, "the body cannot be read: %v", err)
	}
	x.text = edited
	return x.planAgain()
}

// maxEdit is more than an edit adds to a body, in bytes. The client's stream options, which the edit repeats, do not
// count: the body has them already.
const maxEdit = 1 << 10

// saltSuffix adds the client's own salt to the salt of its key. The suffix has a fixed length, whatever the client
// sends.
func saltSuffix(own string) string {
	if own == "" {
		return ""
	}
	hash := sha256.Sum256([]byte(own))
	return "-" + hex.EncodeToString(hash[:16])
}

// sessionKey returns the hash of a client's session.
func sessionKey(client, session string) uint64 { return xxhash.Sum64String(client + "\n" + session) }
