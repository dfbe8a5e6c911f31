// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestStatusGolden pins the tree at each stage, on terminals and elsewhere.
func TestStatusGolden(t *testing.T) {
	fetching := func() *cluster {
		return &cluster{
			objects: []client.Object{workspace(loading), claim("chat-1a2b", "node-1", "", "Launched", "Registered", "Initialized"), pod(0)},
			pods:    &pods{progress: fetchingProgress},
		}
	}
	serves := &cluster{objects: []client.Object{
		workspace(loading, serving), claim("chat-1a2b", "node-1", "", "Launched", "Registered", "Initialized"),
		pod(0, running(true)), pod(1, running(true)),
	}}
	tests := []struct {
		name    string
		cluster *cluster
		session session
		args    []string
	}{
		{"status-new", &cluster{objects: []client.Object{workspace(func(ws *v1beta1.Workspace) { ws.Status = v1beta1.WorkspaceStatus{} })}}, session{}, []string{"chat"}},
		{"status-machine", &cluster{objects: []client.Object{
			workspace(refused), claim("chat-1a2b", "", "the instance is being created", "Launched"),
		}}, session{}, []string{"chat"}},
		{"status-fetching", fetching(), session{}, []string{"chat"}},
		{"status-fetching-terminal", fetching(), session{terminal: true, width: 100}, []string{"chat"}},
		{"status-fetching-narrow", fetching(), session{terminal: true, width: 40, env: map[string]string{"NO_COLOR": "1"}}, []string{"chat"}},
		{"status-fetching-json", fetching(), session{}, []string{"chat", "-o", "json"}},
		{"status-crash", &cluster{objects: []client.Object{workspace(), pod(0, crashing)}}, session{}, []string{"chat"}},
		{"status-ready", serves, session{}, []string{"chat"}},
		{"status-ready-wide", serves, session{}, []string{"chat", "-o", "wide"}},
		{"status-surging", &cluster{objects: []client.Object{
			workspace(surging), claim("chat-1a2b", "node-1", "", "Launched", "Registered", "Initialized"),
			claim("chat-3c4d", "", "the instance is being created"), pod(0, running(true)),
		}}, session{}, []string{"chat"}},
		{"status-stalled", &cluster{objects: []client.Object{workspace(refused, stalled)}}, session{}, []string{"chat"}},
		{"status-list", &cluster{objects: []client.Object{workspace(serving), other()}}, session{}, nil},
		{"status-list-all", &cluster{objects: []client.Object{workspace(stalled), other()}}, session{}, []string{"-A", "-o", "wide"}},
		{"status-list-yaml", &cluster{objects: []client.Object{other()}}, session{}, []string{"-n", "team-b", "-o", "yaml"}},
		{"status-list-none", &cluster{}, session{}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := test.cluster.run(t, test.session, append([]string{"status"}, test.args...)...)
			if got.Code != 0 {
				t.Errorf("exit code %d: %s", got.Code, got.Err)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
}

// other returns a Workspace of another team, without a status.
func other() *v1beta1.Workspace {
	ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "batch", CreationTimestamp: ago(3 * 24 * time.Hour)}}
	ws.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{}}
	return ws
}

// TestStatusFits checks that no line is wider than the terminal.
func TestStatusFits(t *testing.T) {
	escape := regexp.MustCompile("\x1b\\[\\d*[mAJ]")
	for _, width := range []int{24, 30, 40, 60, 80, 200} {
		c := &cluster{
			objects: []client.Object{workspace(refused), claim(strings.Repeat("long-name-", 6), "node-1", "waits", "Launched"), pod(0)},
			pods:    &pods{progress: fetchingProgress},
		}
		got := c.run(t, session{terminal: true, width: width}, "status", "chat")
		for line := range strings.Lines(got.Out) {
			if n := len([]rune(strings.TrimRight(escape.ReplaceAllString(line, ""), "\n"))); n > width {
				t.Errorf("at %d columns a line has %d: %q", width, n, line)
			}
		}
	}
}

// TestStatusAgent polls an agent once. It does not wait for a silent agent.
func TestStatusAgent(t *testing.T) {
	for _, test := range []struct {
		reason   string
		progress func(context.Context) ([]byte, error)
	}{
		{"it cannot be reached", nil},
		{"it answers something else", func(context.Context) ([]byte, error) { return []byte("<html>"), nil }},
		{"it does not answer", func(ctx context.Context) ([]byte, error) {
			if _, bounded := ctx.Deadline(); !bounded {
				return nil, errors.New("no deadline")
			}
			return nil, context.DeadlineExceeded
		}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			c := &cluster{objects: []client.Object{workspace(), pod(0)}, pods: &pods{progress: test.progress}}
			got := c.run(t, session{}, "status", "chat")
			if got.Code != 0 || !strings.Contains(got.Out, "chat-0 fetching weights") || strings.Contains(got.Out, "░") {
				t.Errorf("%+v, want the pod without a bar", got)
			}
			if diff := cmp.Diff([]string{"GET team-a/chat-0:8090/progress"}, c.pods.asked); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// listFault makes lists of one kind fail.
func listFault(is func(client.ObjectList) bool, err error) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if is(list) {
			return err
		}
		return c.List(ctx, list, options...)
	}}
}

func isUnstructured(list client.ObjectList) bool {
	_, is := list.(*unstructured.UnstructuredList)
	return is
}

// TestStatusWithoutRights shows the readable part.
func TestStatusWithoutRights(t *testing.T) {
	c := &cluster{objects: []client.Object{workspace(serving)}, faults: listFault(isUnstructured, forbidden("nodeclaims"))}
	got := c.run(t, session{}, "status", "chat")
	if got.Code != 0 || !strings.Contains(got.Out, "machines you are not allowed to list NodeClaims") {
		t.Errorf("%+v", got)
	}
	without := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "karpenter.sh", Kind: "NodeClaim"}}
	c = &cluster{objects: []client.Object{workspace(loading)}, faults: listFault(isUnstructured, without)}
	got = c.run(t, session{}, "status", "chat")
	if got.Code != 0 || !strings.Contains(got.Out, "nodes node-1") || strings.Contains(got.Out, "machines") {
		t.Errorf("without Karpenter: %+v", got)
	}
}

// TestWatchWithoutRights follows the readable part. It does not retry a forbidden watch.
func TestWatchWithoutRights(t *testing.T) {
	var refusals atomic.Int32
	c := &cluster{objects: []client.Object{workspace()}, faults: listFault(isUnstructured, forbidden("nodeclaims"))}
	c.faults.Watch = func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
		if isUnstructured(list) {
			refusals.Add(1)
			return nil, forbidden("nodeclaims")
		}
		return c.Watch(ctx, list, options...)
	}
	s := follow(t, c, session{}, "status", "chat", "--watch")
	s.out.until(t, "plan")
	s.change(t, workspace(serving))
	if got := s.end(t); got.Code != 0 || refusals.Load() > 1 {
		t.Errorf("%+v after %d refusals", got, refusals.Load())
	}
}

// TestWatchAgain reopens an ended watch, and misses no event of the gap.
func TestWatchAgain(t *testing.T) {
	var opened atomic.Int32
	c := &cluster{objects: []client.Object{workspace()}}
	c.faults.Watch = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
		opened.Add(1)
		ended := watch.NewFake()
		ended.Stop()
		return ended, nil
	}
	clock := clocktesting.NewFakeClock(noon)
	s := follow(t, c, session{clock: clock}, "status", "chat", "--watch")
	s.out.until(t, "plan")
	passUntil := func(isSo func() bool) {
		for !isSo() {
			clock.Step(time.Second)
			select {
			case <-s.out.more:
			case <-time.After(10 * time.Millisecond): // it has not looked yet: another second may pass
			}
		}
	}
	const watches = 3
	passUntil(func() bool { return opened.Load() >= 2*watches })
	s.change(t, workspace(serving))
	passUntil(func() bool { return strings.Contains(s.out.String(), "ready at") })
	if got := s.end(t); got.Code != 0 {
		t.Errorf("%+v after %d watches", got, opened.Load())
	}
}

// TestStatusErrors checks that errors are one line with the remedy.
func TestStatusErrors(t *testing.T) {
	one := []client.Object{workspace()}
	tests := []struct {
		reason  string
		cluster *cluster
		args    string
		code    int
		want    string
	}{
		{
			"an unknown name", &cluster{objects: one}, "nobody", 2,
			"Workspace team-a/nobody does not exist: list the Workspaces with kubectl berth status, or with kubectl berth status -A in all namespaces",
		},
		{"a name and all namespaces", &cluster{}, "chat -A", 2, "-A lists the Workspaces of all namespaces: remove the name, or use -n with its namespace"},
		{"nothing to follow", &cluster{}, "-w", 2, "--watch follows one Workspace: name it"},
		{"data that is followed", &cluster{}, "chat -w -o json", 2, "--watch draws a tree: remove -o json or --watch"},
		{"a timeout of nothing", &cluster{}, "chat --timeout 1m", 2, "--timeout needs --watch"},
		{"a timeout that was", &cluster{}, "chat -w --timeout -1m", 2, "--timeout is -1m0s: it must be above zero, or 0 for none"},
		{
			"no kubeconfig", &cluster{unreachable: clientcmd.ErrEmptyConfig}, "chat", 2,
			"no cluster is configured: set KUBECONFIG, or pass --kubeconfig FILE",
		},
		{
			"a broken kubeconfig", &cluster{unreachable: errors.New("context \"x\" does not exist")}, "chat", 2,
			"the kubeconfig has no usable cluster: context \"x\" does not exist",
		},
		{
			"pods that may not be seen", &cluster{objects: one, faults: listFault(func(l client.ObjectList) bool { _, is := l.(*corev1.PodList); return is }, forbidden("pods"))}, "chat", 5,
			`pods of Workspace team-a/chat: permission denied: pods is forbidden: user "mia" cannot do that`,
		},
		{
			"a cluster that is away", &cluster{faults: listFault(func(client.ObjectList) bool { return true }, context.DeadlineExceeded)}, "", 5,
			"Workspaces: the cluster did not answer in time: see kubectl cluster-info",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := test.cluster.run(t, session{}, append([]string{"status"}, strings.Fields(test.args)...)...)
			want := ran{Err: "kubectl berth status: " + test.want + "\n", Code: test.code}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// told is an output that a test can read at the same time.
type told struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newTold() *told { return &told{more: make(chan struct{}, 1)} }

func (o *told) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

func (o *told) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// until waits for a text.
func (o *told) until(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.more:
		case <-t.Context().Done():
		case <-time.After(20 * time.Second):
			t.Fatalf("%q was never told: %s", text, o.String())
		}
	}
}

// story changes a Workspace step by step while a command follows it.
type story struct {
	objects client.WithWatch
	out     *told
	ended   chan ran
}

func follow(t *testing.T, c *cluster, s session, args ...string) *story {
	t.Helper()
	out := &story{objects: c.client(t), out: newTold(), ended: make(chan ran, 1)}
	s.objects, s.out = out.objects, out.out
	go func() { out.ended <- c.run(t, s, args...) }()
	return out
}

func (s *story) change(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		var err error
		existing, _ := object.DeepCopyObject().(client.Object)
		if s.objects.Get(t.Context(), client.ObjectKeyFromObject(object), existing) != nil {
			err = s.objects.Create(t.Context(), object)
		} else {
			object.SetResourceVersion(existing.GetResourceVersion())
			err = s.objects.Status().Update(t.Context(), object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (s *story) end(t *testing.T) ran {
	t.Helper()
	select {
	case got := <-s.ended:
		got.Out = s.out.String()
		return got
	case <-time.After(20 * time.Second):
		t.Fatalf("it goes on: %s", s.out.String())
		return ran{}
	}
}

// TestWatchAppends prints each milestone once without a terminal, and ends when the model answers.
func TestWatchAppends(t *testing.T) {
	c := &cluster{objects: []client.Object{workspace(refused)}, pods: &pods{progress: fetchingProgress}}
	fake := clocktesting.NewFakeClock(noon)
	s := follow(t, c, session{clock: fake}, "status", "chat", "--watch")
	s.out.until(t, "attempt 2 requests Standard_A24_1")
	s.change(t, claim("chat-1a2b", "", "waits", "Launched"))
	s.out.until(t, "machine chat-1a2b launched")
	s.change(t, pod(0))
	s.out.until(t, "pod chat-0 fetching weights")
	for !strings.Contains(s.out.String(), "40%") {
		fake.Step(time.Second)
		select {
		case <-s.out.more:
		case <-time.After(10 * time.Millisecond): // it has not looked yet: another second may pass
		}
	}
	s.change(t, pod(0, running(false)))
	s.out.until(t, "pod chat-0 starting the engine")
	s.change(t, pod(0, crashing))
	s.out.until(t, "CUDA out of memory")
	s.change(t, workspace(refused, serving))
	got := s.end(t)
	if got.Code != 0 || got.Err != "" {
		t.Errorf("ended with %d and %q", got.Code, got.Err)
	}
	stamp := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d `)
	golden(t, "testdata/golden/status-watch.txt", stamp.ReplaceAllString(got.Out, ""))
}

// TestWatchDraws redraws the tree in place on a terminal, and never draws more lines than the terminal has. It ends
// with a sentence about a stalled Workspace.
func TestWatchDraws(t *testing.T) {
	c := &cluster{objects: []client.Object{workspace(refused)}}
	s := follow(t, c, session{terminal: true, width: 60, height: 8}, "status", "chat", "-w")
	s.out.until(t, "…")
	s.change(t, workspace(stalled))
	got := s.end(t)
	want := "kubectl berth status: Workspace team-a/chat is stalled: Quota: the quota of family B80 is used up; ask for more\n"
	if got.Code != 1 || got.Err != want {
		t.Errorf("ended with %d and %q, want 1 and %q", got.Code, got.Err, want)
	}
	frames := strings.Split(got.Out, "\r\x1b[J")
	for _, frame := range frames[1:] {
		if n := strings.Count(frame, "\n"); n > 7 {
			t.Errorf("a frame has %d lines on a terminal of 8:\n%s", n, frame)
		}
	}
	if !strings.HasSuffix(frames[1], "\x1b[7A") {
		t.Errorf("the second frame does not begin where the first did: %q", frames[1])
	}
}

func TestWatchEnds(t *testing.T) {
	c := &cluster{objects: []client.Object{workspace()}}
	t.Run("when the time is over", func(t *testing.T) {
		got := c.run(t, session{}, "status", "chat", "-w", "--timeout", "20ms")
		want := "kubectl berth status: Workspace team-a/chat is not ready after 20ms: kubectl berth status chat -n team-a shows what it waits for\n"
		if got.Code != 5 || got.Err != want {
			t.Errorf("ended with %d and %q", got.Code, got.Err)
		}
	})
	t.Run("when the Workspace is gone", func(t *testing.T) {
		s := follow(t, c, session{}, "status", "chat", "-w")
		s.out.until(t, "plan")
		if err := s.objects.Delete(t.Context(), workspace()); err != nil {
			t.Fatal(err)
		}
		if got := s.end(t); got.Code != 2 || !strings.Contains(got.Err, "Workspace team-a/chat does not exist") {
			t.Errorf("ended with %d and %q", got.Code, got.Err)
		}
	})
	t.Run("at once when it is ready", func(t *testing.T) {
		ready := &cluster{objects: []client.Object{workspace(serving)}}
		if got := ready.run(t, session{}, "status", "chat", "-w"); got.Code != 0 || !strings.Contains(got.Out, "ready at http://chat.team-a.svc as small-chat") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("never for what was ready before an edit", func(t *testing.T) {
		edited := &cluster{objects: []client.Object{workspace(serving, func(ws *v1beta1.Workspace) { ws.Generation = 3 })}}
		if got := edited.run(t, session{}, "status", "chat", "-w", "--timeout", "20ms"); got.Code != 5 {
			t.Errorf("%+v, want it to wait for the new generation", got)
		}
	})
}

// TestCompleteNames completes the names of Workspaces in the flags' namespace, and nothing without a cluster.
func TestCompleteNames(t *testing.T) {
	c := &cluster{objects: []client.Object{workspace(), other()}}
	if got := c.run(t, session{}, "__complete", "status", ""); !strings.HasPrefix(got.Out, "chat\n:4\n") {
		t.Errorf("%q", got.Out)
	}
	if got := c.run(t, session{}, "__complete", "logs", "-n", "team-b", ""); !strings.HasPrefix(got.Out, "batch\n:4\n") {
		t.Errorf("%q", got.Out)
	}
	away := &cluster{unreachable: errors.New("away")}
	if got := away.run(t, session{}, "__complete", "chat", ""); !strings.HasPrefix(got.Out, ":4\n") {
		t.Errorf("%q", got.Out)
	}
}
