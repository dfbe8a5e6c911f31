// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package extproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// envoy is a stand-in for Envoy's filter. It refuses every message that Envoy would refuse in that phase, and messages
// that would let a client choose its replica or its route.
type envoy struct {
	t         *testing.T
	processor extprocv3.ExternalProcessorClient
	// responseMode is the mode of answers; requests always have the mode of the protocol.
	responseMode modev3.ProcessingMode_BodySendMode
	requestMode  modev3.ProcessingMode_BodySendMode
	subset       []any
	// trailers: the request ends with trailers.
	trailers bool
	// answerTrailers: the answer ends with trailers.
	answerTrailers bool
	// isFirst: the answer is the first that the picker gets to see.
	isFirst bool
	// chunk is the size of the pieces of bodies.
	chunk int
}

// upstream is what a replica gets.
type upstream struct {
	replica string
	headers map[string]string
	body    string
}

// downstream is what a client gets.
type downstream struct {
	status  int
	headers map[string]string
	body    string
}

// engine is a replica's answer.
type engine struct {
	status  string
	headers map[string]string
	body    string
}

func newEnvoy(t *testing.T, processor extprocv3.ExternalProcessorClient) *envoy {
	return &envoy{
		t: t, processor: processor, responseMode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED,
		requestMode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED, chunk: 7,
	}
}

// do sends a request. If the picker answers it, the upstream is nil.
func (e *envoy) do(method, path string, headers map[string]string, body string, answer engine) (*upstream, downstream) {
	e.t.Helper()
	up, down, err := e.try(method, path, headers, body, answer)
	if err != nil {
		e.t.Fatalf("Envoy would fail the request: %v", err)
	}
	return up, down
}

func (e *envoy) try(method, path string, headers map[string]string, body string, answer engine) (*upstream, downstream, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	stream, err := e.processor.Process(ctx)
	if err != nil {
		return nil, downstream{}, err
	}
	first := requestHeaders(method, path, headers, body == "")
	first.ProtocolConfig = e.config()
	if e.subset != nil {
		list, err := structpb.NewList(e.subset)
		if err != nil {
			return nil, downstream{}, err
		}
		first.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb.subset_hint": {Fields: map[string]*structpb.Value{"x-gateway-destination-endpoint-subset": structpb.NewListValue(list)}},
		}}
	}
	if err := e.sendRequest(stream, first, body); err != nil {
		return nil, downstream{}, err
	}
	up, own, err := e.readRequest(stream, headers)
	if err != nil || own != nil {
		if own == nil {
			own = &downstream{}
		}
		return nil, *own, err
	}
	down, err := e.answer(stream, answer)
	return up, down, err
}

// config is what Envoy adds to the first message of a stream, whichever it is.
func (e *envoy) config() *extprocv3.ProtocolConfiguration {
	return &extprocv3.ProtocolConfiguration{RequestBodyMode: e.requestMode, ResponseBodyMode: e.responseMode}
}

// refuse answers a request itself after some messages of it, as Envoy does if another filter refuses it.
func (e *envoy) refuse(answer engine, messages ...*extprocv3.ProcessingRequest) (downstream, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	stream, err := e.processor.Process(ctx)
	if err != nil {
		return downstream{}, err
	}
	e.isFirst = len(messages) == 0
	for i, message := range messages {
		if i == 0 {
			message.ProtocolConfig = e.config()
		}
		if err := stream.Send(message); err != nil {
			return downstream{}, err
		}
	}
	return e.answer(stream, answer)
}

func requestHeaders(method, path string, headers map[string]string, isEnd bool) *extprocv3.ProcessingRequest {
	all := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		{Key: ":method", RawValue: []byte(method)}, {Key: ":path", RawValue: []byte(path)}, {Key: ":authority", RawValue: []byte("models.example")},
	}}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		all.Headers = append(all.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(headers[name])})
	}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: all, EndOfStream: isEnd},
	}}
}

type processStream = grpc.BidiStreamingClient[extprocv3.ProcessingRequest, extprocv3.ProcessingResponse]

func (e *envoy) sendRequest(stream processStream, first *extprocv3.ProcessingRequest, body string) error {
	messages := []*extprocv3.ProcessingRequest{first}
	for chunk := range slices.Chunk([]byte(body), e.chunk) {
		messages = append(messages, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: chunk},
		}})
	}
	switch {
	case body != "" && e.trailers:
		messages = append(messages, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{
			RequestTrailers: &extprocv3.HttpTrailers{},
		}})
	case body != "":
		messages[len(messages)-1].GetRequestBody().EndOfStream = true
	}
	for _, message := range messages {
		if err := stream.Send(message); err != nil && !errors.Is(err, io.EOF) { // EOF: an answer came before the body's end
			return err
		}
	}
	return nil
}

// readRequest reads the answers to a request: headers, then the body, then trailers; or one answer for the client.
func (e *envoy) readRequest(stream processStream, client map[string]string) (*upstream, *downstream, error) {
	var out *upstream
	isWhole := false
	for !isWhole {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, nil, errors.New("bypass: the stream ended cleanly before the request had a replica")
		}
		if err != nil {
			return nil, nil, err
		}
		switch answer := message.GetResponse().(type) {
		case *extprocv3.ProcessingResponse_ImmediateResponse:
			if out != nil {
				return nil, nil, errors.New("an immediate answer after the headers")
			}
			own, err := immediateOf(answer.ImmediateResponse)
			return nil, own, err
		case *extprocv3.ProcessingResponse_RequestHeaders:
			if out != nil {
				return nil, nil, errors.New("the headers twice")
			}
			if out, err = e.headers(message, client); err != nil {
				return nil, nil, err
			}
		case *extprocv3.ProcessingResponse_RequestBody:
			if out == nil {
				return nil, nil, errors.New("a body before the headers")
			}
			piece, isLast, err := e.piece(answer.RequestBody.GetResponse(), modev3.ProcessingMode_FULL_DUPLEX_STREAMED)
			if err != nil {
				return nil, nil, err
			}
			out.body += piece
			if isLast && e.trailers {
				return nil, nil, errors.New("the body ends the stream, but trailers follow")
			}
			isWhole = isLast
		case *extprocv3.ProcessingResponse_RequestTrailers:
			if !e.trailers || out == nil {
				return nil, nil, errors.New("an answer to trailers that the request does not have")
			}
			isWhole = true
		default:
			return nil, nil, fmt.Errorf("%T does not answer a request", answer)
		}
	}
	if want := out.headers["content-length"]; want != strconv.Itoa(len(out.body)) {
		return nil, nil, fmt.Errorf("content-length %s for %d bytes", want, len(out.body))
	}
	return out, nil, nil
}

func immediateOf(answer *extprocv3.ImmediateResponse) (*downstream, error) {
	code := answer.GetStatus().GetCode()
	if _, ok := typev3.StatusCode_name[int32(code)]; !ok || code == 0 {
		return nil, fmt.Errorf("Envoy has no status %d", code)
	}
	out := &downstream{status: int(code), headers: map[string]string{}, body: string(answer.GetBody())}
	return out, mutate(out.headers, answer.GetHeaders())
}

// headers applies the answer to the headers of a request.
func (e *envoy) headers(message *extprocv3.ProcessingResponse, client map[string]string) (*upstream, error) {
	common := message.GetRequestHeaders().GetResponse()
	switch {
	case common.GetStatus() != extprocv3.CommonResponse_CONTINUE:
		return nil, errors.New("CONTINUE_AND_REPLACE in full duplex")
	case common.GetBodyMutation() != nil:
		return nil, errors.New("a body in the answer to headers")
	case common.GetClearRouteCache():
		return nil, errors.New("the client's headers could choose another route")
	}
	out := &upstream{headers: maps.Clone(client)}
	if out.headers == nil {
		out.headers = map[string]string{}
	}
	if err := mutate(out.headers, common.GetHeaderMutation()); err != nil {
		return nil, err
	}
	out.replica = out.headers["x-gateway-destination-endpoint"]
	noted := message.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue().GetFields()["x-gateway-destination-endpoint"].GetStringValue()
	if out.replica == "" || noted != out.replica {
		return nil, fmt.Errorf("the header names the endpoint %q, and the metadata %q", out.replica, noted)
	}
	return out, nil
}

// mutate applies a mutation of headers, as Envoy does with its default rules.
func mutate(headers map[string]string, by *extprocv3.HeaderMutation) error {
	for _, name := range by.GetRemoveHeaders() {
		if name != strings.ToLower(name) || strings.HasPrefix(name, ":") || name == "host" {
			return fmt.Errorf("the header %q cannot be removed", name)
		}
		delete(headers, name)
	}
	for _, option := range by.GetSetHeaders() {
		name := option.GetHeader().GetKey()
		switch {
		case name != strings.ToLower(name), strings.HasPrefix(name, ":"), name == "host", strings.HasPrefix(name, "x-envoy"):
			return fmt.Errorf("the header %q cannot be set", name)
		case option.GetHeader().GetValue() != "":
			return fmt.Errorf("the value of %q is not raw", name)
		}
		value := string(option.GetHeader().GetRawValue())
		if former, ok := headers[name]; ok && option.GetAppendAction() == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD {
			value = former + "," + value
		}
		headers[name] = value
	}
	return nil
}

// piece returns the body in an answer, and whether it is the last one.
func (e *envoy) piece(common *extprocv3.CommonResponse, mode modev3.ProcessingMode_BodySendMode) (string, bool, error) {
	mutation := common.GetBodyMutation()
	if common.GetHeaderMutation() != nil {
		return "", false, errors.New("headers in an answer to a body")
	}
	if mode == modev3.ProcessingMode_FULL_DUPLEX_STREAMED {
		streamed := mutation.GetStreamedResponse()
		if streamed == nil {
			return "", false, fmt.Errorf("%T in full duplex", mutation.GetMutation())
		}
		if len(streamed.GetBody()) > 64<<10 {
			return "", false, fmt.Errorf("a piece of %d bytes", len(streamed.GetBody()))
		}
		return string(streamed.GetBody()), streamed.GetEndOfStream(), nil
	}
	if mutation.GetStreamedResponse() != nil {
		return "", false, errors.New("a streamed answer, but not in full duplex")
	}
	return string(mutation.GetBody()), false, nil
}

// answer sends an answer, and then waits for the end of the stream.
func (e *envoy) answer(stream processStream, answer engine) (downstream, error) {
	out, err := e.sendAnswer(stream, answer)
	if err != nil {
		return out, err
	}
	if message, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return out, fmt.Errorf("after the answer, the stream has %v, %w", message, err)
	}
	return out, nil
}

func (e *envoy) sendAnswer(stream processStream, answer engine) (downstream, error) {
	out := downstream{headers: maps.Clone(answer.headers)}
	all := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte(answer.status)}}}
	for name, value := range answer.headers {
		all.Headers = append(all.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	first := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extprocv3.HttpHeaders{Headers: all, EndOfStream: answer.body == ""},
	}}
	if e.isFirst {
		first.ProtocolConfig = e.config()
	}
	if err := stream.Send(first); err != nil {
		return out, err
	}
	message, err := stream.Recv()
	if err != nil {
		return out, err
	}
	common := message.GetResponseHeaders()
	if common == nil || common.GetResponse().GetBodyMutation() != nil {
		return out, fmt.Errorf("%T answers the headers of an answer", message.GetResponse())
	}
	if err := mutate(out.headers, common.GetResponse().GetHeaderMutation()); err != nil {
		return out, err
	}
	if out.status, err = strconv.Atoi(answer.status); err != nil || answer.body == "" {
		return out, err
	}
	var body bytes.Buffer
	err = e.answerBody(stream, []byte(answer.body), &body)
	out.body = body.String()
	return out, err
}

func (e *envoy) answerBody(stream processStream, text []byte, into *bytes.Buffer) error {
	isFullDuplex := e.responseMode == modev3.ProcessingMode_FULL_DUPLEX_STREAMED
	for len(text) > 0 {
		n := min(e.chunk, len(text))
		err := stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
			ResponseBody: &extprocv3.HttpBody{Body: text[:n], EndOfStream: n == len(text) && !e.answerTrailers},
		}})
		if err != nil {
			return err
		}
		if text = text[n:]; isFullDuplex {
			continue
		}
		if _, err := e.readPiece(stream, into); err != nil { // each piece has an answer
			return err
		}
	}
	if e.answerTrailers {
		err := stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{
			ResponseTrailers: &extprocv3.HttpTrailers{},
		}})
		if err != nil {
			return err
		}
	}
	for isLast := !isFullDuplex && !e.answerTrailers; !isLast; {
		var err error
		if isLast, err = e.readPiece(stream, into); err != nil {
			return err
		}
	}
	return nil
}

// readPiece reads the answer to a piece of a body or, at the end, to its trailers.
func (e *envoy) readPiece(stream processStream, into *bytes.Buffer) (isLast bool, err error) {
	message, err := stream.Recv()
	if err != nil {
		return false, err
	}
	if message.GetResponseTrailers() != nil && e.answerTrailers {
		return true, nil
	}
	if message.GetResponseBody() == nil {
		return false, fmt.Errorf("%T answers the body of an answer", message.GetResponse())
	}
	piece, isLast, err := e.piece(message.GetResponseBody().GetResponse(), e.responseMode)
	if isLast && e.answerTrailers {
		return false, errors.New("the body ends the answer, but trailers follow")
	}
	into.WriteString(piece)
	return isLast, err
}

// ok is a whole answer of an engine.
func ok(body string) engine {
	return engine{status: strconv.Itoa(http.StatusOK), headers: map[string]string{"content-type": "application/json"}, body: body}
}
