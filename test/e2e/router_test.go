// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/privileges"
)

// endlessPair is an InferenceSet whose answers may be as long as a test likes.
const endlessPair = `apiVersion: kaito.sh/v1beta1
kind: InferenceSet
metadata: {name: pair}
spec:
  replicas: 2
  updateStrategy:
    rollingUpdate: {partition: 1, rollback: {}}
  template:
    inference:
      preset: {name: tiny-chat}
      engine:
        args: {context-shift: "true"}
`

// routerAccount is the router's user of the API server.
const routerAccount = "system:serviceaccount:" + systemNamespace + ":" + routerName

const (
	routerName = release + "-router"
	// engineProcess and routerProcess are names of processes as the kernel keeps them, in 15 characters.
	engineProcess, routerProcess = "llama-server", "modelberth-rout"
	// The keys of clients: one of the namespace with the models, one of another namespace, and one with a limit.
	keyOfTeam, keyOfOthers, keyWithLimit = "sk-team-0123456789abcdef", "sk-others-0123456789abcdef", "sk-limited-0123456789abcdef"
)

// TestRouter runs two routers from the chart, before two replicas of a set with a real engine: answers, refusals,
// limits, a cancelled request, and under load a killed replica, a killed router and a deleted router.
func TestRouter(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, endlessPair)
	for key, fields := range map[string]string{
		keyOfTeam: "namespaces=" + ns, keyOfOthers: "namespaces=elsewhere", keyWithLimit: "namespaces=" + ns + ",requestsPerMinute=4",
	} {
		addKey(t, key, fields)
	}
	start := time.Now()
	configure(t, "router.enabled=true", "router.hold.requests=20", "router.image.repository=registry.local:5000/modelberth/router", "router.image.tag=dev")
	elapsed(t, "the router from the chart to ready", start)
	set := types.NamespacedName{Namespace: ns, Name: "pair"}
	waitSet(t, set)
	d := enter(t)
	d.waitReplicas(t, 2)

	t.Run("models", d.lists)
	t.Run("answers", d.answers)
	t.Run("refusals", d.refuses)
	t.Run("a limit", d.limits)
	t.Run("a client that goes", func(t *testing.T) { d.cancels(t, set) })
	t.Run("a canary", func(t *testing.T) { d.splits(t, set) })
	t.Run("a replica is killed", func(t *testing.T) { d.outlivesReplica(t, set) })
	t.Run("a router is killed", d.outlivesKilledRouter)
	t.Run("a router goes", d.outlivesRouter)
	t.Run("a set at zero", func(t *testing.T) { d.wakes(t, set) })
	expectNothingForbidden(t, routerAccount)
}

// addKey stores a key as docs/router.md says.
func addKey(t *testing.T, key, fields string) {
	t.Helper()
	name := strings.TrimSuffix(strings.TrimPrefix(key, "sk-"), "-0123456789abcdef")
	args := []string{"create", "secret", "generic", name, "--namespace=" + systemNamespace, "--from-literal=key=" + key}
	for field := range strings.SplitSeq(fields, ",") {
		args = append(args, "--from-literal="+field)
	}
	kubectl(t, args...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		if _, err := execute(ctx, local.kubectl, "delete", "secret", name, "--namespace="+systemNamespace); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	kubectl(t, "label", "secret", name, "--namespace="+systemNamespace, "modelberth.dev/router-key=true")
}

// door is the routers' address, for clients inside the cluster.
type door struct {
	url    string
	client *http.Client
}

// enter finds the address of the routers' Service, and a node to ask from.
func enter(t *testing.T) *door {
	t.Helper()
	service := &corev1.Service{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: systemNamespace, Name: routerName}, service); err != nil {
		t.Fatal(err)
	}
	return &door{"http://" + service.Spec.ClusterIP, &http.Client{Transport: inside(t, routerPods(t)[0].Spec.NodeName)}}
}

func routerPods(t *testing.T) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	labels := client.MatchingLabels{"app.kubernetes.io/name": "modelberth-router"}
	if err := local.client.List(t.Context(), pods, client.InNamespace(systemNamespace), labels); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Fatal("there is no router")
	}
	return pods.Items
}

// reply is what a client got.
type reply struct {
	status int
	header http.Header
	body   string
}

// code is the code of an error in OpenAI's shape.
func (r *reply) code() string {
	var out struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(r.body), &out); err != nil || out.Error.Message == "" {
		return "not OpenAI's shape"
	}
	return out.Error.Code
}

// ask sends a request and reads the answer to its end.
func (d *door) ask(ctx context.Context, key, method, path, body string) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := d.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return &reply{answer.StatusCode, answer.Header, string(text)}, err
}

func (d *door) mustAsk(t *testing.T, key, method, path, body string) *reply {
	t.Helper()
	out, err := d.ask(t.Context(), key, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// chat is a request for a few tokens.
func chat(model string, tokens int, isStream bool) string {
	return fmt.Sprintf(`{"model": %q, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": %d, "stream": %t}`, model, tokens, isStream)
}

const chatPath = "/v1/chat/completions"

// waitReplicas waits until each router has had the time to find the replicas: until all of many new connections get an
// answer.
func (d *door) waitReplicas(t *testing.T, routers int) {
	t.Helper()
	waitFor(t, "the routers to find the set", seenTimeout, func(ctx context.Context) (bool, error) {
		for range routers * 4 {
			d.client.CloseIdleConnections()
			got, err := d.ask(ctx, keyOfTeam, http.MethodPost, chatPath, chat("pair", 1, false))
			if err != nil || got.status != http.StatusOK {
				return false, err
			}
		}
		return true, nil
	})
}

func (d *door) lists(t *testing.T) {
	names := func(key string) string {
		var list struct {
			Data []struct{ ID string }
		}
		decodeJSON(t, d.mustAsk(t, key, http.MethodGet, "/v1/models", "").body, &list)
		var out []string
		for _, model := range list.Data {
			out = append(out, model.ID)
		}
		return strings.Join(out, " ")
	}
	if got := names(keyOfTeam); got != "modelberth/tiny-chat pair tiny-chat" {
		t.Errorf("the key of the namespace lists %q, want the set and the names of its model", got)
	}
	if got := names(keyOfOthers); got != "" {
		t.Errorf("the key of another namespace lists %q, want nothing", got)
	}
}

func (d *door) answers(t *testing.T) {
	whole := d.mustAsk(t, keyOfTeam, http.MethodPost, chatPath, chat("tiny-chat", 8, false))
	var answer struct {
		Choices []struct{ Message struct{ Role string } }
		Usage   struct {
			Completion int `json:"completion_tokens"`
		}
	}
	decodeJSON(t, whole.body, &answer)
	if whole.status != http.StatusOK || len(answer.Choices) != 1 || answer.Choices[0].Message.Role != "assistant" || answer.Usage.Completion < 1 {
		t.Errorf("the answer is %d %s, want a message with its usage", whole.status, whole.body)
	}
	stream := d.mustAsk(t, keyOfTeam, http.MethodPost, chatPath, chat("pair", 8, true))
	events := strings.Count(stream.body, "data: {")
	if events < 3 || !strings.HasSuffix(strings.TrimSpace(stream.body), "data: [DONE]") || strings.Contains(stream.body, `"usage":{`) {
		t.Errorf("the stream is %s, want events to the end, without the usage that nobody asked for", stream.body)
	}
	if got := stream.header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("the stream is of type %q", got)
	}
	asked := strings.Replace(chat("pair", 8, true), "{", `{"stream_options": {"include_usage": true}, `, 1)
	if got := d.mustAsk(t, keyOfTeam, http.MethodPost, chatPath, asked); !strings.Contains(got.body, `"completion_tokens":`) {
		t.Errorf("the stream has not the usage that was asked for: %s", got.body)
	}
}

func (d *door) refuses(t *testing.T) {
	for _, tc := range []struct {
		reason, key, path, body, code string
		status                        int
	}{
		{"no key", "", chatPath, chat("pair", 1, false), "invalid_api_key", http.StatusUnauthorized},
		{"a wrong key", "sk-nobodys-0123456789", chatPath, chat("pair", 1, false), "invalid_api_key", http.StatusUnauthorized},
		{"an unknown model", keyOfTeam, chatPath, chat("gpt-9", 1, false), "model_not_found", http.StatusNotFound},
		{"a model of others", keyOfOthers, chatPath, chat("pair", 1, false), "model_not_found", http.StatusNotFound},
		{"no JSON", keyOfTeam, chatPath, "{", "invalid_body", http.StatusBadRequest},
		{"two models", keyOfTeam, chatPath, `{"model": "pair", "model": "tiny-chat"}`, "invalid_body", http.StatusBadRequest},
		{"a path that only engines have", keyOfTeam, "/v1/load_lora_adapter", "{}", "unknown_route", http.StatusNotFound},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := d.mustAsk(t, tc.key, http.MethodPost, tc.path, tc.body)
			if got.status != tc.status || got.code() != tc.code {
				t.Errorf("%d %s, want %d %s: %s", got.status, got.code(), tc.status, tc.code, got.body)
			}
		})
	}
}

// limits sends requests until each router has enforced its half of 4 requests per minute.
func (d *door) limits(t *testing.T) {
	passed := 0
	for range 40 {
		d.client.CloseIdleConnections() // the next connection may reach the other router
		got := d.mustAsk(t, keyWithLimit, http.MethodPost, chatPath, chat("pair", 1, false))
		if got.status == http.StatusOK {
			passed++
			continue
		}
		wait, err := strconv.Atoi(got.header.Get("Retry-After"))
		if got.status != http.StatusTooManyRequests || got.code() != "rate_limit_exceeded" || err != nil || wait < 1 || wait > 60 {
			t.Fatalf("%d %s, Retry-After %q; want 429 with a time below a minute", got.status, got.body, got.header.Get("Retry-After"))
		}
	}
	if passed < 2 || passed > 5 { // the bucket of a router has refilled by one at most in these seconds
		t.Errorf("%d requests passed, want 4 in a minute", passed)
	}
}

// cancels goes away in the middle of an answer that would last for minutes. The engine must stop.
func (d *door) cancels(t *testing.T, set types.NamespacedName) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := strings.Replace(chat("pair", 100_000, true), "{", `{"ignore_eos": true, `, 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+chatPath, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+keyOfTeam)
	answer, err := d.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := answer.Body.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the first byte: %v", err)
	}
	pods := enginePods(t, set)
	if busy := d.processing(t, pods); busy != 1 {
		t.Errorf("%d requests are processed while a client reads, want 1", busy)
	}
	cancel()
	start := time.Now()
	waitFor(t, "the engine to stop", 10*time.Second, func(context.Context) (bool, error) { return d.processing(t, pods) == 0, nil })
	elapsed(t, "from the end of a client to the engine's", start)
}

// enginePods returns the pods that serve a set.
func enginePods(t *testing.T, set types.NamespacedName) []corev1.Pod {
	t.Helper()
	var out []corev1.Pod
	for _, replica := range replicasOf(t, set) {
		out = append(out, *leader(t, &replica))
	}
	return out
}

// processing counts the requests that the engines work on, by their own metrics.
func (d *door) processing(t *testing.T, pods []corev1.Pod) int {
	t.Helper()
	total := 0
	for i := range pods {
		total += d.gauge(t, &pods[i], "requests_processing")
	}
	return total
}

// gauge returns a metric of an engine.
func (d *door) gauge(t *testing.T, pod *corev1.Pod, name string) int {
	t.Helper()
	engine := door{fmt.Sprintf("http://%s:5000", pod.Status.PodIP), d.client}
	text := engine.mustAsk(t, "", http.MethodGet, "/metrics", "").body
	_, after, found := strings.Cut(text, "\nllamacpp:"+name+" ")
	value, _, _ := strings.Cut(after, "\n")
	number, err := strconv.Atoi(value)
	if !found || err != nil {
		t.Fatalf("the engine has no metric %s: %v\n%s", name, err, text)
	}
	return number
}

// outlivesReplica kills the engine of one replica under load. The other one answers requests that begin afterwards. A
// request in the killed engine may fail, with one clear error or in the middle of its answer.
func (d *door) outlivesReplica(t *testing.T, set types.NamespacedName) {
	pods := enginePods(t, set)
	l := d.startLoad(t)
	l.waitAnswers(t)
	// One of two routers has two of them or more, and divides them over the replicas. The kill follows at once, because
	// none may end before it.
	long := d.startLong(t, 4)
	killing := time.Now()
	if err := kill9(pods[0].UID, engineProcess); err != nil {
		t.Error(err)
	}
	killed := time.Now()
	waitReturn(t, "the replica", &pods[0])
	elapsed(t, "from the death of a replica to its return", killed)
	l.waitAnswers(t)
	all := l.stop()
	lost := 0
	for _, o := range append(all, long()...) {
		switch {
		case o.err == "":
		case o.began.After(killed):
			t.Errorf("a request %s after the death of a replica failed: %s", o.began.Sub(killed), o.err)
		case o.ended.Before(killing):
			t.Errorf("a request %s before the death of a replica failed: %s", killing.Sub(o.began), o.err)
		case !o.isClear:
			t.Errorf("a request under way got no clear error: %s", o.err)
		default:
			lost++
		}
	}
	broken := 0
	for _, o := range long() {
		if strings.HasPrefix(o.err, "in mid-answer") {
			broken++
		}
	}
	if broken == 0 || broken == len(long()) {
		t.Errorf("%d of %d long answers ended early, want those of one of two replicas", broken, len(long()))
	}
	t.Logf("%d requests, %d of them lost with the replica, %d in mid-answer", len(all)+len(long()), lost, broken)
}

// waitReturn waits until a pod with a killed process is ready again, or its successor of that name.
func waitReturn(t *testing.T, what string, before *corev1.Pod) {
	t.Helper()
	waitFor(t, what+" to return", readyTimeout, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{}
		err := local.client.Get(ctx, keyOf(before), pod)
		return err == nil && isReady(pod) && (pod.UID != before.UID || restarts(pod) > restarts(before)), client.IgnoreNotFound(err)
	})
}

// outlivesKilledRouter kills one of two routers under load. The requests that this router had are lost. No request of
// the other one fails, and the killed one serves again.
func (d *door) outlivesKilledRouter(t *testing.T) {
	pods := routerPods(t)
	if len(pods) != 2 {
		t.Fatalf("%d routers, want 2", len(pods))
	}
	var loads []*load
	var longs []func() []outcome
	for i := range pods {
		at := &door{fmt.Sprintf("http://%s:8000", pods[i].Status.PodIP), &http.Client{Transport: inside(t, pods[0].Spec.NodeName)}}
		loads, longs = append(loads, at.startLoad(t)), append(longs, at.startLong(t, 1))
	}
	loads[0].waitAnswers(t)
	killing := time.Now()
	if err := kill9(pods[0].UID, routerProcess); err != nil {
		t.Error(err)
	}
	waitReturn(t, "the router", &pods[0])
	returned := time.Now()
	elapsed(t, "from the death of a router to its return", killing)
	for _, l := range loads {
		l.waitAnswers(t)
	}
	lost, refused := 0, 0
	for _, o := range append(loads[0].stop(), longs[0]()...) {
		switch {
		case o.err == "":
		case o.ended.Before(killing), o.began.After(returned):
			t.Errorf("a request from %s to %s after the death of the router failed: %s", o.began.Sub(killing), o.ended.Sub(killing), o.err)
		case strings.Contains(o.err, "connection refused"):
			refused++
		default:
			lost++
		}
	}
	if lost == 0 {
		t.Error("the killed router lost no request: it was not under load")
	}
	others := append(loads[1].stop(), longs[1]()...)
	for _, o := range others {
		if o.err != "" {
			t.Errorf("a request of the other router, %s after the death, failed: %s", o.began.Sub(killing), o.err)
		}
	}
	t.Logf("the killed router lost %d requests, %d connections to it were refused, and all %d requests of the other one passed", lost, refused, len(others))
	d.waitReplicas(t, len(pods))
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, container := range pod.Status.ContainerStatuses {
		n += container.RestartCount
	}
	return n
}

// outlivesRouter deletes one of two routers under load: no request fails, neither on the connections of before nor on
// new ones, and a long answer under way is finished.
func (d *door) outlivesRouter(t *testing.T) {
	l := d.startLoad(t)
	long := d.startLong(t, 2) // on two connections, so probably on both routers
	l.waitAnswers(t)
	pods := routerPods(t)
	start := time.Now()
	kubectl(t, "delete", "pod", pods[0].Name, "--namespace="+systemNamespace, "--wait", "--timeout="+goneTimeout.String())
	elapsed(t, "from the deletion of a router to its end", start)
	l.waitAnswers(t)
	all := l.stop()
	for _, o := range all {
		if o.err != "" {
			t.Errorf("a request %s after the deletion of a router failed: %s", o.began.Sub(start), o.err)
		}
	}
	for _, o := range long() {
		if o.err != "" {
			t.Errorf("a long answer failed: %s", o.err)
		}
	}
	t.Logf("%d requests", len(all))
	kubectl(t, "rollout", "status", "deployment/"+routerName, "--namespace="+systemNamespace, "--timeout="+goneTimeout.String())
}

// wakes sends requests to a set at zero. They wait, the router asks for a replica, and the first one answers them.
func (d *door) wakes(t *testing.T, set types.NamespacedName) {
	scale := func(replicas int) {
		kubectl(t, "scale", "inferenceset", set.Name, "--namespace="+set.Namespace, fmt.Sprintf("--replicas=%d", replicas))
	}
	scale(0)
	waitFor(t, "the set to be at zero", goneTimeout, func(ctx context.Context) (bool, error) {
		list := &v1beta1.WorkspaceList{}
		err := local.client.List(ctx, list, client.InNamespace(set.Namespace))
		return len(list.Items) == 0, err
	})
	start := time.Now()
	var asked sync.WaitGroup
	outcomes := make([]outcome, 4)
	for i := range outcomes {
		asked.Go(func() { outcomes[i] = d.once(t.Context(), loadAnswer, i%2 == 0) })
	}
	waitFor(t, "the router to ask for a replica", seenTimeout, func(ctx context.Context) (bool, error) {
		found := &v1beta1.InferenceSet{}
		err := local.client.Get(ctx, set, found)
		return found.Annotations[v1beta1.AnnotationWake] != "", err
	})
	elapsed(t, "from a request to the annotation", start)
	scale(1) // as an autoscaler does
	asked.Wait()
	for _, o := range outcomes {
		if o.err != "" {
			t.Errorf("a request that waited %s failed: %s", o.ended.Sub(o.began).Round(time.Second), o.err)
		}
	}
	elapsed(t, "from zero to the answers", start)
}

// expectNothingForbidden reads in the audit log that an account was refused nothing.
func expectNothingForbidden(t *testing.T, account string) {
	t.Helper()
	requests, err := privileges.Read(auditPath(), account)
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) == 0 {
		t.Errorf("the audit log has no request of %s", account)
	}
	for _, request := range requests {
		if request.IsForbidden() {
			t.Errorf("%s was refused %s: %s", account, request.Privilege(), request.ResponseStatus.Message)
		}
	}
}
