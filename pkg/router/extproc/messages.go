// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package extproc

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/modelberth/modelberth/pkg/router"
)

// maxChunk is the largest piece of a body in one message, in bytes. With its frame, it fits into the first window of an
// HTTP/2 stream, so no gateway waits for half a message.
const maxChunk = 60 << 10

// modes are the gateway's settings that determine the form of the answers.
type modes struct {
	// isFullDuplex: the pieces of an answer need not match the gateway's pieces.
	isFullDuplex bool
}

// modesOf returns the modes of a gateway, or the reason why it cannot be served. A gateway without modes uses the modes
// of the protocol of endpoint pickers.
func modesOf(first *extprocv3.ProcessingRequest) (out modes, problem string) {
	config := first.GetProtocolConfig()
	out.isFullDuplex = config == nil || config.GetResponseBodyMode() == modev3.ProcessingMode_FULL_DUPLEX_STREAMED
	switch {
	case first.GetObservabilityMode():
		problem = "the gateway does not wait for answers (observability_mode)"
	case config != nil && config.GetRequestBodyMode() != modev3.ProcessingMode_FULL_DUPLEX_STREAMED:
		problem = "the gateway sends bodies of requests in the mode " + config.GetRequestBodyMode().String() +
			" instead of FULL_DUPLEX_STREAMED"
	}
	return out, problem
}

// immediate returns the message with an answer of the router itself.
func immediate(answer *router.Answer) *extprocv3.ProcessingResponse {
	var set []*corev3.HeaderValueOption
	for name, values := range answer.Header {
		set = append(set, header(strings.ToLower(name), strings.Join(values, ", ")))
	}
	sortHeaders(set)
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(answer.Status)}, //nolint:gosec // HTTP statuses are small
			Headers: &extprocv3.HeaderMutation{SetHeaders: set},
			Body:    answer.Body, Details: "modelberth_router",
		},
	}}
}

func sortHeaders(all []*corev3.HeaderValueOption) {
	slices.SortFunc(all, func(a, b *corev3.HeaderValueOption) int {
		return strings.Compare(a.GetHeader().GetKey(), b.GetHeader().GetKey())
	})
}

// header returns a header that replaces the client's. Envoy's default would append to it, and the first of several
// endpoints counts: a client could choose the replica.
func header(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// chosen returns the message with the replica of a request.
func chosen(replica string, length int, withheld []string) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{
				HeaderMutation: &extprocv3.HeaderMutation{
					SetHeaders: []*corev3.HeaderValueOption{
						header(keyEndpoint, replica), header("content-length", strconv.Itoa(length)),
					},
					RemoveHeaders: lower(withheld),
				},
			},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			namespaceLB: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				keyEndpoint: structpb.NewStringValue(replica),
			}}),
		}},
	}
}

func lower(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strings.ToLower(name)
	}
	return out
}

// pieces returns a body in messages. The last one ends the body, unless trailers follow.
func pieces(body []byte, isLast bool) []*extprocv3.CommonResponse {
	var out []*extprocv3.CommonResponse
	for chunk := range slices.Chunk(body, maxChunk) {
		out = append(out, streamed(chunk, false))
	}
	switch {
	case isLast && len(out) == 0:
		out = append(out, streamed(nil, true))
	case isLast:
		out[len(out)-1].GetBodyMutation().GetStreamedResponse().EndOfStream = true
	}
	return out
}

func streamed(chunk []byte, isLast bool) *extprocv3.CommonResponse {
	return &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: chunk, EndOfStream: isLast},
	}}}
}

// replaced returns the answer to one piece of a body in the modes in which each piece has its own answer.
func replaced(chunk []byte) *extprocv3.CommonResponse {
	out := &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: chunk}}
	if len(chunk) == 0 {
		out.Mutation = &extprocv3.BodyMutation_ClearBody{ClearBody: true}
	}
	return &extprocv3.CommonResponse{BodyMutation: out}
}

// headersOf returns the headers of a message, and its pseudo-headers.
func headersOf(message *extprocv3.HttpHeaders) (http.Header, map[string]string) {
	out, pseudo := http.Header{}, map[string]string{}
	for _, each := range message.GetHeaders().GetHeaders() {
		value := each.GetValue()
		if len(each.GetRawValue()) > 0 {
			value = string(each.GetRawValue())
		}
		if strings.HasPrefix(each.GetKey(), ":") {
			pseudo[each.GetKey()] = value
			continue
		}
		out.Add(each.GetKey(), value)
	}
	return out, pseudo
}
