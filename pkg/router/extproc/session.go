// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package extproc

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/openai"
)

// session is one stream.
type session struct {
	server *Server
	stream extprocv3.ExternalProcessor_ProcessServer
	inbox  *inbox
	modes  modes
	pool   *router.Pool
	picked *router.Picked
	// reader reads the answer.
	reader reader
}

// reader reads an answer, and decides what of it the client gets.
type reader interface {
	Begin(status int, header http.Header) (withheld []string)
	Take(piece []byte, isLast bool) []byte
}

// unread is the reader of an answer of the gateway itself, which passes unchanged.
type unread struct{}

// Begin implements reader.
func (unread) Begin(int, http.Header) []string { return nil }

// Take implements reader.
func (unread) Take(piece []byte, _ bool) []byte { return piece }

// serve answers a request and then reads its answer.
func (x *session) serve(headers *extprocv3.HttpHeaders) error {
	body := &bodyReader{
		inbox: x.inbox, clock: x.server.clock, isWhole: headers.GetEndOfStream(),
		end: x.server.clock.Now().Add(x.server.settings.BodyTimeout),
	}
	request, problem := requestOf(x.inbox.choice, headers, body, x.pool)
	if problem != nil {
		return x.refuse(problem)
	}
	x.picked = x.server.picker.Pick(request, x.pool)
	defer x.picked.End()
	own := x.picked.Answer()
	switch {
	case own != nil && x.inbox.ctx.Err() != nil:
		return x.inbox.ended() // nobody waits for the answer
	case !x.inbox.decide():
		return x.readAnswer(unread{}, nil)
	case own != nil:
		return x.stream.Send(immediate(own))
	}
	if err := x.sendRequest(body.hasTrailers); err != nil {
		return err
	}
	x.picked.Forget()
	return x.readAnswer(x.picked, nil)
}

// requestOf returns the request of a client. The URL that selects a set, /NAMESPACE/NAME/v1/…, is the path /v1/… here.
func requestOf(ctx context.Context, headers *extprocv3.HttpHeaders, body *bodyReader, pool *router.Pool) (*http.Request, *openai.Error) {
	all, pseudo := headersOf(headers)
	parsed, err := url.ParseRequestURI(pseudo[":path"])
	if err != nil {
		return nil, openai.Errorf(http.StatusBadRequest, openai.CodeUnknownRoute, "the path is not valid")
	}
	if rest, ok := strings.CutPrefix(parsed.Path, "/"+pool.Namespace+"/"+pool.Name+"/"); ok {
		parsed.Path = "/" + rest
	}
	length := int64(-1)
	if n, err := strconv.ParseInt(all.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	out := &http.Request{
		Method: pseudo[":method"], URL: &url.URL{Path: parsed.Path}, Header: all, Body: body, ContentLength: length,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	return out.WithContext(ctx), nil
}

// refuse answers without the router.
func (x *session) refuse(problem *openai.Error) error {
	return x.stream.Send(immediate(router.AnswerOf(problem)))
}

// sendRequest sends the replica and the edited body: first the headers, then the body, then the trailers.
func (x *session) sendRequest(hasTrailers bool) error {
	text := x.picked.Body()
	if err := x.stream.Send(chosen(x.picked.Replica(), len(text), x.picked.Withheld())); err != nil {
		return err
	}
	for _, piece := range pieces(text, !hasTrailers) {
		err := x.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: &extprocv3.BodyResponse{Response: piece},
		}})
		if err != nil {
			return err
		}
	}
	if !hasTrailers {
		return nil
	}
	return x.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extprocv3.TrailersResponse{},
	}})
}

// readAnswer passes an answer on until its end. If first is not nil, the answer begins with it.
func (x *session) readAnswer(of reader, first *extprocv3.ProcessingRequest) error {
	x.reader = of
	message, hasHeaders := first, false
	for {
		if message == nil {
			var err error
			if message, err = x.inbox.next(); err != nil || message == nil {
				return err
			}
		}
		var isEnd bool
		var err error
		switch {
		case message.GetResponseHeaders() != nil && !hasHeaders:
			hasHeaders = true
			isEnd, err = x.answerHeaders(message.GetResponseHeaders())
		case message.GetResponseBody() != nil && hasHeaders:
			isEnd, err = x.answerBody(message.GetResponseBody())
		case message.GetResponseTrailers() != nil && hasHeaders:
			isEnd, err = true, x.answerTrailers()
		default:
			return status.Errorf(codes.InvalidArgument, "%T cannot follow here", message.GetRequest())
		}
		if err != nil || isEnd {
			return err
		}
		message = nil
	}
}

func (x *session) answerHeaders(message *extprocv3.HttpHeaders) (isEnd bool, err error) {
	headers, pseudo := headersOf(message)
	code, err := strconv.Atoi(pseudo[":status"])
	if err != nil || code < 100 || code > 999 {
		return false, status.Errorf(codes.InvalidArgument, "the answer has the status %.20q", pseudo[":status"])
	}
	out := &extprocv3.CommonResponse{}
	if withheld := x.reader.Begin(code, headers); len(withheld) > 0 {
		out.HeaderMutation = &extprocv3.HeaderMutation{RemoveHeaders: lower(withheld)}
	}
	return message.GetEndOfStream(), x.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{Response: out},
	}})
}

func (x *session) answerBody(message *extprocv3.HttpBody) (isEnd bool, err error) {
	isEnd = message.GetEndOfStream()
	text := x.reader.Take(message.GetBody(), isEnd)
	if !x.modes.isFullDuplex {
		return isEnd, x.sendAnswer(replaced(text))
	}
	for _, piece := range pieces(text, isEnd) {
		if err := x.sendAnswer(piece); err != nil {
			return isEnd, err
		}
	}
	return isEnd, nil
}

func (x *session) sendAnswer(piece *extprocv3.CommonResponse) error {
	return x.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{Response: piece},
	}})
}

// answerTrailers passes the rest of the body, and the trailers. Outside full duplex, the body is over, so an event that
// the replica left unfinished is lost. Clients of event streams ignore unfinished events.
func (x *session) answerTrailers() error {
	if text := x.reader.Take(nil, true); len(text) > 0 && x.modes.isFullDuplex {
		for _, piece := range pieces(text, false) {
			if err := x.sendAnswer(piece); err != nil {
				return err
			}
		}
	}
	return x.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &extprocv3.TrailersResponse{},
	}})
}
