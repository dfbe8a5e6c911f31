// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// server is an OpenAI-compatible server.
type server struct {
	mu    sync.Mutex
	asked []map[string]any
	// answer writes the answer to the n-th request.
	answer func(w http.ResponseWriter, r *http.Request, n int)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question map[string]any
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "unexpected", http.StatusTeapot)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, question)
	n := len(s.asked)
	s.mu.Unlock()
	s.answer(w, r, n)
}

// stream writes pieces of an answer.
func stream(w io.Writer, deltas ...string) {
	for _, delta := range deltas {
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":%s}]}\n\n", delta)
	}
}

const done = "data: [DONE]\n\n"

// serves returns a cluster with a server behind a Workspace.
func serves(t *testing.T, answer func(http.ResponseWriter, *http.Request, int)) (*cluster, *server) {
	t.Helper()
	s := &server{answer: answer}
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	c := &cluster{
		objects: []client.Object{workspace(serving), pod(0, running(true)), pod(1, running(true))},
		pods:    &pods{address: strings.TrimPrefix(listening.URL, "http://")},
	}
	return c, s
}

// sky is an answer in pieces, after a thought.
func sky(w http.ResponseWriter, _ *http.Request, _ int) {
	stream(w, `{"role":"assistant"}`, `{"reasoning_content":"Hmm."}`, `{"content":"It "}`, `{"content":"scatters."}`)
	fmt.Fprint(w, done)
}

func TestChat(t *testing.T) {
	tests := []struct {
		reason  string
		session session
		args    []string
		out     string
		asked   map[string]any
	}{
		{
			"a prompt on the line",
			session{},
			[]string{"chat", "Why", "blue?", "--system", "Be brief.", "--max-tokens", "9"},
			"It scatters.\n",
			map[string]any{
				"model": "small-chat", "stream": true, "max_tokens": 9.0,
				"messages": []any{map[string]any{"role": "system", "content": "Be brief."}, map[string]any{"role": "user", "content": "Why blue?"}},
			},
		},
		{
			"a prompt from a pipe, and another name",
			session{stdin: "Why?\n"},
			[]string{"chat", "--model", "made-up/Small-Chat"},
			"It scatters.\n",
			map[string]any{"model": "made-up/Small-Chat", "stream": true, "messages": []any{map[string]any{"role": "user", "content": "Why?\n"}}},
		},
		{
			"a thought is dimmed on a terminal",
			session{terminal: true},
			[]string{"chat", "Why?"},
			"\x1b[2mHmm.\x1b[0m\n\nIt scatters.\n",
			map[string]any{"model": "small-chat", "stream": true, "messages": []any{map[string]any{"role": "user", "content": "Why?"}}},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c, s := serves(t, sky)
			got := c.run(t, test.session, append([]string{"chat"}, test.args...)...)
			if diff := cmp.Diff(ran{Out: test.out}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]map[string]any{test.asked}, s.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"forward team-a/chat-0:5000"}, c.pods.asked); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An endpoint with a key answers only users who may read the Secret.
func TestChatSendsKey(t *testing.T) {
	withKey := workspace(serving, func(ws *v1beta1.Workspace) { ws.Inference.Engine = &v1beta1.EngineSpec{APIKeySecret: "key"} })
	secret := &corev1.Secret{Data: map[string][]byte{"API_KEY": []byte("k-1")}}
	secret.Namespace, secret.Name = "team-a", "key"
	for _, tc := range []struct {
		reason  string
		objects []client.Object
		faults  interceptor.Funcs
		want    ran
	}{
		{"the Secret may be read", []client.Object{withKey, secret}, interceptor.Funcs{}, ran{Out: "It scatters.\n"}},
		{"the Secret is gone", []client.Object{withKey}, interceptor.Funcs{}, ran{
			Err: "kubectl berth chat: Secret team-a/key with the endpoint's key does not exist\n", Code: 2,
		}},
		{"the Secret may not be read", []client.Object{withKey, secret}, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if _, isSecret := object.(*corev1.Secret); isSecret {
					return forbidden("secrets")
				}
				return c.Get(ctx, key, object, options...)
			},
		}, ran{
			Err:  "kubectl berth chat: Secret team-a/key with the endpoint's key: permission denied: secrets is forbidden: user \"mia\" cannot do that\n",
			Code: 5,
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c, _ := serves(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if r.Header.Get("Authorization") != "Bearer k-1" {
					http.Error(w, "Invalid API Key", http.StatusUnauthorized)
					return
				}
				sky(w, r, n)
			})
			c.objects, c.faults = append(c.objects[1:], tc.objects...), tc.faults
			if diff := cmp.Diff(tc.want, c.run(t, session{}, "chat", "chat", "Why?")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChatWhole(t *testing.T) {
	c, _ := serves(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"All at once."},"finish_reason":"stop"}]}`)
	})
	if diff := cmp.Diff(ran{Out: "All at once.\n"}, c.run(t, session{}, "chat", "chat", "--no-stream", "Why?")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChatConverses checks that the history has the answered messages, but not the failed ones.
func TestChatConverses(t *testing.T) {
	c, s := serves(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 2 {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"This model's maximum context length is 8192 tokens."}}`)
			return
		}
		stream(w, fmt.Sprintf(`{"content":"answer %d"}`, n))
		fmt.Fprint(w, done)
	})
	got := c.run(t, session{typing: true, stdin: "one\n\ntwo\nthree\n/exit\nnever\n"}, "chat", "chat")
	want := ran{
		Out: "> answer 1\n> > > answer 3\n> ",
		Err: "Talking to small-chat of Workspace team-a/chat. Ctrl-C cancels an answer; /exit or Ctrl-D ends.\n" +
			"the model's server rejects the request: This model's maximum context length is 8192 tokens.\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	said := func(role, content string) any { return map[string]any{"role": role, "content": content} }
	last := s.asked[len(s.asked)-1]["messages"]
	if diff := cmp.Diff([]any{said("user", "one"), said("assistant", "answer 1"), said("user", "three")}, last); diff != "" {
		t.Errorf("the third question (-want +got):\n%s", diff)
	}
}

// TestChatCancels cancels an answer with Ctrl-C, and the conversation continues.
func TestChatCancels(t *testing.T) {
	pressed := make(chan context.CancelFunc, 2)
	c, _ := serves(t, func(w http.ResponseWriter, r *http.Request, n int) {
		stream(w, fmt.Sprintf(`{"content":"answer %d"}`, n))
		press := <-pressed
		if n == 1 {
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			press()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, done)
	})
	interrupt := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		pressed <- cancel
		return ctx, cancel
	}
	got := c.run(t, session{typing: true, stdin: "one\ntwo\n", interrupt: interrupt}, "chat", "chat")
	if got.Code != 0 || !strings.Contains(got.Out, "(cancelled)\n> answer 2\n> \n") || strings.Count(got.Err, "\n") != 1 {
		t.Errorf("%+v", got)
	}
}

// TestChatWaitsOutALapse has a kubelet take the first readiness of a pod back for one probe.
func TestChatWaitsOutALapse(t *testing.T) {
	tests := []struct {
		reason string
		change func(*v1beta1.Workspace)
		pod    func(*corev1.Pod)
		lists  int
		code   int
	}{
		{"the pod of a Workspace that answered is soon ready again", answered, running(false), 2, 0},
		{"a Workspace that never answered is not awaited", func(*v1beta1.Workspace) {}, running(false), 1, 5},
		{"a crash is no lapse", answered, crashing, 1, 5},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c, _ := serves(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				stream(w, `{"content":"Yes."}`)
				fmt.Fprint(w, done)
			})
			c.objects = []client.Object{workspace(serving, test.change), pod(0, running(true))}
			lists := 0
			c.faults.List = func(ctx context.Context, server client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				err := server.List(ctx, list, options...)
				if pods, ok := list.(*corev1.PodList); ok {
					lists++
					if lists == 1 {
						pods.Items[0] = *pod(0, test.pod)
					}
				}
				return err
			}
			got := c.run(t, session{}, "chat", "chat", "Why?")
			if got.Code != test.code || test.code != 0 && lists != test.lists || lists < test.lists {
				t.Errorf("code %d after %d lists, want %d after %d: %+v", got.Code, lists, test.code, test.lists, got)
			}
		})
	}
}

// answered has had ready pods.
func answered(ws *v1beta1.Workspace) { ws.Status.LatestReadyRevision = "chat-1" }

func TestChatErrors(t *testing.T) {
	fine := func(http.ResponseWriter, *http.Request, int) {}
	tests := []struct {
		reason string
		answer func(http.ResponseWriter, *http.Request, int)
		change func(*cluster)
		args   []string
		want   ran
	}{
		{
			"nobody answers yet", fine, func(c *cluster) { c.objects = []client.Object{workspace(), pod(0), pod(1, running(true))} },
			[]string{"chat", "Why?"},
			ran{Err: "Workspace team-a/chat does not answer yet (waiting for 1 of 1 machines of type Standard_A24_1): watch it with kubectl berth status chat --watch", Code: 5},
		},
		{"no prompt", fine, nil, []string{"chat"}, ran{Err: "there is no prompt: write one after the Workspace's name, or pipe one in", Code: 2}},
		{
			"a model that is not served", fine, nil,
			[]string{"chat", "--model", "big", "Why?"},
			ran{Err: `--model: the endpoint does not serve "big": use small-chat or made-up/Small-Chat`, Code: 2},
		},
		{
			"no names", fine, func(c *cluster) {
				c.objects = []client.Object{workspace(func(ws *v1beta1.Workspace) { ws.Status.Endpoint = nil }), pod(0, running(true))}
			},
			[]string{"chat", "Why?"},
			ran{Err: "Workspace team-a/chat lists no models: name one with --model", Code: 2},
		},
		{"a negative length", fine, nil, []string{"chat", "--max-tokens", "-1", "Why?"}, ran{Err: "--max-tokens is -1: it must be at least 1, or 0 for no limit", Code: 2}},
		{
			"port-forward is not allowed", fine, func(c *cluster) { c.pods.forward = forbidden("pods/portforward") },
			[]string{"chat", "Why?"},
			ran{Err: `port-forward to pod team-a/chat-0: permission denied: pods/portforward is forbidden: user "mia" cannot do that`, Code: 5},
		},
		{
			"a sentence in vLLM's older form", func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"object":"error","message":"The model does not exist."}`)
			}, nil,
			[]string{"chat", "Why?"},
			ran{Err: "the model's server rejects the request: The model does not exist.", Code: 5},
		},
		{
			"no sentence", func(w http.ResponseWriter, _ *http.Request, _ int) {
				http.Error(w, "upstream down", http.StatusBadGateway)
			}, nil,
			[]string{"chat", "Why?"},
			ran{Err: "the model's server rejects the request: 502 Bad Gateway upstream down", Code: 5},
		},
		{
			"an error in the stream", func(w http.ResponseWriter, _ *http.Request, _ int) {
				stream(w, `{"content":"It"}`)
				fmt.Fprint(w, "data: {\"error\":\"out of memory\"}\n\n")
			}, nil,
			[]string{"chat", "Why?"},
			ran{Out: "It\n", Err: "the model's server interrupted the answer: out of memory", Code: 5},
		},
		{
			"an end without a word", func(w http.ResponseWriter, _ *http.Request, _ int) { stream(w, `{"content":"It"}`) }, nil,
			[]string{"chat", "Why?"},
			ran{Out: "It\n", Err: "the model's server interrupted the answer without a reason: kubectl berth logs shows why", Code: 5},
		},
		{
			"no JSON", func(w http.ResponseWriter, _ *http.Request, _ int) { fmt.Fprint(w, "data: <html>\n\n") }, nil,
			[]string{"chat", "Why?"},
			ran{Err: "the model's server streamed a non-JSON response: invalid character '<' looking for beginning of value", Code: 5},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c, _ := serves(t, test.answer)
			if test.change != nil {
				test.change(c)
			}
			test.want.Err = "kubectl berth chat: " + test.want.Err + "\n"
			if diff := cmp.Diff(test.want, c.run(t, session{}, append([]string{"chat"}, test.args...)...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChatBrokenConnection(t *testing.T) {
	c, _ := serves(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		if h, ok := w.(http.Hijacker); ok {
			if connection, _, err := h.Hijack(); err == nil {
				_ = connection.Close()
			}
		}
	})
	got := c.run(t, session{}, "chat", "chat", "Why?")
	if got.Code != 5 || !strings.HasPrefix(got.Err, "kubectl berth chat: the connection to the model's server was lost (") {
		t.Errorf("%+v", got)
	}
	c.pods.forward = errors.New("pod is gone")
	if got := c.run(t, session{}, "chat", "chat", "Why?"); got.Err != "kubectl berth chat: port-forward to pod team-a/chat-0: pod is gone\n" {
		t.Errorf("%+v", got)
	}
}
