// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// endpoint is a connection to a model's server.
type endpoint struct {
	url    string
	client *http.Client
	// key of the server; empty if it needs none.
	key string
}

// mostAnswer limits the bytes of a whole answer, and of one line of a stream.
const mostAnswer = 8 << 20

// A kubelet may withdraw a pod's first readiness until its next probe, 5 s later in our pods
// (https://github.com/kubernetes/kubernetes/issues/103717).
const (
	readinessLapse = 6 * time.Second
	readinessPoll  = 500 * time.Millisecond
)

// answering returns the pod that answers for a Workspace. It waits out a lapse of readiness, so that a script can
// chat as soon as the Workspace was Ready.
func (c *Cluster) answering(ctx context.Context, ws *v1beta1.Workspace) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var leader *corev1.Pod
	err := wait.PollUntilContextTimeout(ctx, readinessPoll, readinessLapse, true, func(ctx context.Context) (bool, error) {
		pods, err := c.pods(ctx, ws.Name)
		if err != nil {
			return false, err
		}
		leader = nil
		at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return memberOf(&pod) == 0 && pod.DeletionTimestamp == nil })
		if at >= 0 {
			leader = &pods[at]
		}
		return leader == nil || isPodReady(leader) || !isLapse(ws, leader), nil
	})
	switch {
	case err != nil && !wait.Interrupted(err):
		return nil, err
	case leader == nil || !isPodReady(leader):
		return nil, clusterError("Workspace %s does not answer yet (%s): watch it with kubectl berth status %s --watch",
			key(ws), strings.TrimSuffix(summary(ws).Message, "."), ws.Name)
	}
	return leader, nil
}

// isLapse reports whether an unready pod may be ready again at its next probe: its Workspace has answered, and its
// containers run without a restart.
func isLapse(ws *v1beta1.Workspace, pod *corev1.Pod) bool {
	return ws.Status.LatestReadyRevision != "" && !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running == nil || c.RestartCount > 0
	})
}

// endpoint connects to the answering pod of a Workspace until the context ends. An interrupted answer breaks the
// connection. So each exchange of a conversation needs a new connection.
func (c *Cluster) endpoint(ctx context.Context, ws *v1beta1.Workspace) (*endpoint, error) {
	pod, err := c.answering(ctx, ws)
	if err != nil {
		return nil, err
	}
	secret, err := c.apiKey(ctx, ws)
	if err != nil {
		return nil, err
	}
	address, err := c.Pods.Forward(ctx, client.ObjectKeyFromObject(pod), enginePort(pod))
	if err != nil {
		return nil, worded(err, "port-forward to pod "+key(pod))
	}
	// Without keep-alives, no request is sent twice after a server has closed an idle connection.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return &endpoint{url: "http://" + address, client: client, key: secret}, nil
}

// apiKey reads the key of a Workspace's endpoint with the user's rights; empty if the Workspace names no Secret.
func (c *Cluster) apiKey(ctx context.Context, ws *v1beta1.Workspace) (string, error) {
	name := ws.Inference.APIKeySecretName()
	if name == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	secret := &corev1.Secret{}
	at := client.ObjectKey{Namespace: ws.Namespace, Name: name}
	if err := c.Objects.Get(ctx, at, secret); err != nil {
		return "", worded(err, "Secret "+at.String()+" with the endpoint's key")
	}
	return string(secret.Data[v1beta1.APIKeyKey]), nil
}

// enginePort returns the port of a pod's engine: the first port of its container.
func enginePort(pod *corev1.Pod) int32 {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return ports[0].ContainerPort
		}
	}
	return v1beta1.EnginePort
}

// servedModel returns the name of the selected model, or of the first one.
func servedModel(ws *v1beta1.Workspace, wanted string) (string, error) {
	var models []string
	if ws.Status.Endpoint != nil {
		models = ws.Status.Endpoint.Models
	}
	switch {
	case wanted == "" && len(models) > 0:
		return models[0], nil
	case wanted == "":
		return "", usageError("Workspace %s lists no models: name one with --model", key(ws))
	case len(models) > 0 && !slices.Contains(models, wanted):
		return "", usageError("--model: the endpoint does not serve %q: use %s", wanted, orList(models))
	default:
		return wanted, nil
	}
}

// message is a part of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// question is the request of a chat completion.
type question struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	MaxTokens     int            `json:"max_tokens,omitempty"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
	// IgnoreEOS makes a model generate exactly MaxTokens. vLLM and llama.cpp support it.
	IgnoreEOS bool `json:"ignore_eos,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// usage counts the tokens of an answer.
type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// piece is a part of an answer, or a whole answer.
type piece struct {
	Choices []struct {
		Delta        delta  `json:"delta"`
		Message      delta  `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
	// Error is an error that the server reports in the middle of a stream.
	Error json.RawMessage `json:"error"`
}

type delta struct {
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
}

// ask sends a request and passes on each piece of the answer as it arrives.
func (e *endpoint) ask(ctx context.Context, q *question, each func(*piece)) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if e.key != "" {
		request.Header.Set("Authorization", "Bearer "+e.key)
	}
	response, err := e.client.Do(request)
	if err != nil {
		return broken(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, mostAnswer)) // the part before an interruption
		return clusterError("the model's server rejects the request: %s", spoken(response.Status, said))
	}
	if !q.Stream {
		return whole(ctx, response.Body, each)
	}
	return streamed(ctx, response.Body, each)
}

func whole(ctx context.Context, body io.Reader, each func(*piece)) error {
	text, err := io.ReadAll(io.LimitReader(body, mostAnswer))
	if err != nil {
		return broken(ctx, err)
	}
	got := &piece{}
	if err := json.Unmarshal(text, got); err != nil {
		return clusterError("the model's server returned a non-JSON response: %w", err)
	}
	each(got)
	return nil
}

// streamed reads server-sent events.
func streamed(ctx context.Context, body io.Reader, each func(*piece)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, mostAnswer)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data:")
		if !found {
			continue
		}
		data = strings.TrimSpace(data)
		if data == "[DONE]" {
			_, err := io.Copy(io.Discard, io.LimitReader(body, mostAnswer)) // until the server is done
			return err
		}
		got := &piece{}
		if err := json.Unmarshal([]byte(data), got); err != nil {
			return clusterError("the model's server streamed a non-JSON response: %w", err)
		}
		if len(got.Error) > 0 {
			return clusterError("the model's server interrupted the answer: %s", spoken("", []byte(data)))
		}
		each(got)
	}
	if err := lines.Err(); err != nil {
		return broken(ctx, err)
	}
	return clusterError("the model's server interrupted the answer without a reason: kubectl berth logs shows why")
}

// broken reports an interrupted connection.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return clusterError("the connection to the model's server was lost (%w): kubectl berth status shows whether the server is still running", err)
}

// spoken extracts the message from a server's error.
func spoken(status string, body []byte) string {
	var said struct {
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &said) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var plain string
		switch {
		case said.Message != "":
			return said.Message
		case json.Unmarshal(said.Error, &inner) == nil && inner.Message != "":
			return inner.Message
		case json.Unmarshal(said.Error, &plain) == nil && plain != "":
			return plain
		}
	}
	return strings.TrimSpace(status + " " + shorten(strings.TrimSpace(string(body))))
}
