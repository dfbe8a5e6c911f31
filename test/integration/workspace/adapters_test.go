// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/agent/loader"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/vllmsim/server"
)

// liveForm is a Workspace with three slots for adapters that change while its engine runs.
func liveForm(namespace, name string, names ...string) *v1beta1.Workspace {
	ws := plannerForm(namespace, name)
	ws.Inference.Preset.Name = "tiny-chat-vllm"
	ws.Inference.AdapterUpdates = v1beta1.AdapterUpdatesLive
	ws.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"max-loras": "3"}}
	ws.Inference.Adapters = adaptersOf(names...)
	return ws
}

func adaptersOf(names ...string) []v1beta1.AdapterSpec {
	var out []v1beta1.AdapterSpec
	for _, name := range names {
		out = append(out, v1beta1.AdapterSpec{Source: &v1beta1.DataSource{Name: name, Repository: "org/" + name}})
	}
	return out
}

// loadingPod is the content of a Workspace's pod: the engine, the agent's part for adapters, and the kubelet's copy of
// the annotation.
type loadingPod struct {
	world   *world
	ws      *v1beta1.Workspace
	dir     string
	address string
}

// beginPod starts the content of the pod at a loopback address.
func (w *world) beginPod(t *testing.T, ws *v1beta1.Workspace) *loadingPod {
	t.Helper()
	p := &loadingPod{world: w, ws: ws, dir: t.TempDir()}
	engine := httptest.NewServer(server.New(server.Options{
		Version: "0.31.0", Names: []string{"tiny"}, Root: "/models", MaxLen: 64, Sequences: 4, CacheTokens: 1000, MaxAdapters: 3,
		Timing: server.Timing{Step: patience}, Step: func(context.Context) error { return nil }, Dead: func() {},
		LoadAdapter: func(string) string { return "" },
	}))
	t.Cleanup(engine.Close)
	at, err := url.Parse(engine.URL)
	if err != nil {
		t.Fatal(err)
	}
	keeper := loader.New(loader.Config{
		File: filepath.Join(p.dir, "list"), Root: filepath.Join(p.dir, "root"), Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		Engine: loader.VLLM{URL: engine.URL, Client: http.DefaultClient},
		Fetch: func(_ context.Context, a adapters.Adapter) error {
			if strings.HasPrefix(a.Name, "broken") {
				return errors.New("org/broken does not exist")
			}
			return nil
		},
	})
	p.listen(t, loader.Guard(at, "/health", "", keeper))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { keeper.Run(ctx) })
	running.Go(func() { p.copyList(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return p
}

func (p *loadingPod) listen(t *testing.T, handler http.Handler) {
	t.Helper()
	for third := 1; third < 250; third++ { // other stories may have some of the addresses
		address := fmt.Sprintf("127.79.%d.1", third)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, strconv.Itoa(v1beta1.EnginePort)))
		if err != nil {
			continue
		}
		site := loader.NewServer(handler)
		go func() { _ = site.Serve(listener) }()
		t.Cleanup(func() { _ = site.Close() })
		p.address = address
		return
	}
	t.Fatalf("no address of the loopback network has a free port %d", v1beta1.EnginePort)
}

// copyList stands in for the kubelet: it gives the pod its address, and keeps its annotation in a file.
func (p *loadingPod) copyList(ctx context.Context) {
	key := client.ObjectKey{Namespace: p.ws.Namespace, Name: p.ws.Name + "-0"}
	at := filepath.Join(p.dir, "list")
	for ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		pod := &corev1.Pod{}
		if p.world.client.Get(ctx, key, pod) != nil {
			continue
		}
		if pod.Status.PodIP == "" && pod.Status.Phase == corev1.PodRunning {
			patch := fmt.Appendf(nil, `{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, p.address, p.address)
			_ = p.world.client.Status().Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)) // the next look tries again
		}
		if os.WriteFile(at+".new", []byte(pod.Annotations[v1beta1.AnnotationAdapters]), 0o600) == nil {
			_ = os.Rename(at+".new", at)
		}
	}
}

// names returns the adapters at the endpoint, as the status says.
func (p *loadingPod) names(t *testing.T) []string {
	t.Helper()
	p.world.read(t, p.ws)
	if p.ws.Status.Endpoint == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.ws.Status.Endpoint.Models), func(name string) bool { return !strings.HasPrefix(name, "adapter-") })
}

func (p *loadingPod) untilNames(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("adapters %v", want), func() (bool, string) {
		got := p.names(t)
		return slices.Equal(got, want), fmt.Sprintf("%v, %+v; %s", got, p.ws.Status.Adapters, saying(p.ws))
	})
}

// listed returns the adapters in the pod's annotation.
func (p *loadingPod) listed(t *testing.T) []string {
	t.Helper()
	pod := &corev1.Pod{}
	if err := p.world.client.Get(t.Context(), client.ObjectKey{Namespace: p.ws.Namespace, Name: p.ws.Name + "-0"}, pod); err != nil {
		return nil
	}
	list, err := adapters.Decode(pod.Annotations[v1beta1.AnnotationAdapters])
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range list.Adapters {
		out = append(out, a.Name)
	}
	return out
}

func (p *loadingPod) edit(t *testing.T, names ...string) {
	t.Helper()
	p.world.patch(t, p.ws, func() { p.ws.Inference.Adapters = adaptersOf(names...) })
}

// TestAdaptersChangeWithoutRestart follows the adapters of a running engine.
func TestAdaptersChangeWithoutRestart(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	ws := liveForm(w.namespace(t), "live", "adapter-a")
	p := w.beginPod(t, ws)
	w.create(t, ws)
	w.untilServing(t, ws)
	p.untilNames(t, "adapter-a")
	pod, before := w.podUID(t, ws), w.running(t, ws)

	began := time.Now()
	p.edit(t, "adapter-a", "adapter-b")
	p.untilNames(t, "adapter-a", "adapter-b")
	t.Logf("from the edit to the status: %s", time.Since(began))
	p.edit(t, "adapter-b", "adapter-c", "broken")
	p.untilNames(t, "adapter-b", "adapter-c")
	eventually(t, "the failure is in the status", func() (bool, string) {
		w.read(t, ws)
		at := slices.IndexFunc(ws.Status.Adapters, func(a v1beta1.AdapterStatus) bool { return a.Name == "broken" })
		return at >= 0 && ws.Status.Adapters[at].State == v1beta1.AdapterFailed &&
			ws.Status.Adapters[at].Message == "org/broken does not exist", fmt.Sprintf("%+v", ws.Status.Adapters)
	})
	if condition(ws, v1beta1.ConditionReady).Status != metav1.ConditionTrue {
		t.Errorf("a failed adapter takes the model away: %s", saying(ws))
	}
	p.edit(t, "adapter-b")
	p.untilNames(t, "adapter-b")
	eventually(t, "the pod's list follows", func() (bool, string) {
		got := p.listed(t)
		return slices.Equal(got, []string{"adapter-b"}), fmt.Sprint(got)
	})
	if after := w.running(t, ws); w.podUID(t, ws) != pod || after.Plan != before.Plan || after.Set != before.Set {
		t.Errorf("a change of adapters replaces what runs: %+v, then %+v", before, after)
	}
	wrote, since := 0, time.Now()
	eventually(t, "no write of progress waits any more", func() (bool, string) {
		if now := len(life.recorder.Writes()); now != wrote {
			wrote, since = now, time.Now()
		}
		return time.Since(since) > 11*time.Second, fmt.Sprintf("%d writes", wrote) // such a write waits for ten seconds at most
	})
	w.passes(t, life, ws, 2)
	if writes := life.recorder.Writes()[wrote:]; len(writes) != 0 {
		t.Errorf("settled adapters cost writes: %v", writes)
	}

	// A new pod gets the spec's list, not its plan's.
	if err := w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name + "-0"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the list of the new pod", func() (bool, string) {
		got := p.listed(t)
		return slices.Equal(got, []string{"adapter-b"}) && w.podUID(t, ws) != pod, fmt.Sprint(got)
	})

	// More adapters than slots need another plan.
	p.edit(t, "adapter-b", "adapter-c", "adapter-d", "adapter-e")
	w.patch(t, ws, func() { ws.Inference.Engine.Args["max-loras"] = "4" })
	w.untilArgs(t, ws, "--max-loras 4")
	p.untilNames(t, "adapter-b", "adapter-c", "adapter-d", "adapter-e")
	w.remove(t, ws)
}

// TestAdaptersBeyondSlots: an edit that the running pods cannot adopt replaces them, and the plan has the reason.
func TestAdaptersBeyondSlots(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	ws := liveForm(w.namespace(t), "full", "adapter-a", "adapter-b", "adapter-c")
	p := w.beginPod(t, ws)
	delete(ws.Inference.Engine.Args, "max-loras")
	w.create(t, ws)
	w.untilServing(t, ws)
	p.untilNames(t, "adapter-a", "adapter-b", "adapter-c")
	pod := w.podUID(t, ws)
	p.edit(t, "adapter-a", "adapter-b", "adapter-c", "adapter-d")
	w.untilArgs(t, ws, "--max-loras 4")
	p.untilNames(t, "adapter-a", "adapter-b", "adapter-c", "adapter-d")
	if w.podUID(t, ws) == pod {
		t.Error("the engine got more adapters than its plan has slots")
	}
	const want = "the pods are replaced, because 4 adapters need as many slots, and the plan has memory for 3"
	if message := condition(ws, v1beta1.ConditionPlanned).Message; !strings.Contains(message, want) {
		t.Errorf("the status does not say why: %s", message)
	}
	w.remove(t, ws)
}

// TestCrashAtEveryWriteOfAdapters kills the controller at every write while an adapter is replaced by another one. At no
// moment does the pod lose an adapter that the status still has.
func TestCrashAtEveryWriteOfAdapters(t *testing.T) {
	w := enter(t)
	for _, moment := range []faults.Moment{faults.Before, faults.After} {
		for number := 1; ; number++ {
			if crashed := w.crashAdapters(t, number, moment); !crashed || t.Failed() {
				t.Logf("crashed %s each of %d writes", moment, number-1)
				if number < 4 && !t.Failed() {
					t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
				}
				break
			}
		}
	}
}

func (w *world) crashAdapters(t *testing.T, number int, moment faults.Moment) (crashed bool) {
	t.Helper()
	t.Run(fmt.Sprintf("%s write %d", moment, number), func(t *testing.T) {
		before := w.begin(t, faults.NewRecorder())
		ws := liveForm(w.namespace(t), "live", "adapter-a", "adapter-b")
		p := w.beginPod(t, ws)
		w.create(t, ws)
		w.untilServing(t, ws)
		p.untilNames(t, "adapter-a", "adapter-b")
		w.passes(t, before, ws, 2)
		before.end(t)
		pod := w.podUID(t, ws)

		var first *life
		recorder := faults.CrashAt(number, moment, func() { first.cancel() })
		first = w.begin(t, recorder)
		p.edit(t, "adapter-b", "adapter-c")
		eventually(t, "the adapters of the edit", func() (bool, string) {
			if recorder.Crashed() && !crashed {
				crashed = true
				first.end(t)
				w.begin(t, faults.NewRecorder())
			}
			listed := p.listed(t) // before the status
			named := p.names(t)
			for _, name := range named {
				if listed != nil && !slices.Contains(listed, name) {
					t.Fatalf("the pod loses %s while the status has it: list %v, status %v", name, listed, named)
				}
			}
			want := []string{"adapter-b", "adapter-c"}
			return slices.Equal(named, want) && slices.Equal(listed, want), fmt.Sprintf("list %v, status %v; %s", listed, named, saying(ws))
		})
		if w.podUID(t, ws) != pod {
			t.Error("the pod was replaced")
		}
		if crashed {
			w.remove(t, ws)
		}
	})
	return crashed
}

// TestAdaptersOfSet: an edit of a set's adapters reaches all its replicas, and neither buys a machine nor replaces a pod.
func TestAdaptersOfSet(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	set := setForm(w.namespace(t), "live", 2)
	set.Spec.Template.Inference = liveForm(set.Namespace, "live", "adapter-a").Inference
	w.createSet(t, set)
	w.untilScaled(t, set, 2)
	pods := map[string]*loadingPod{}
	uids := map[string]types.UID{}
	for _, ws := range w.children(t, set) {
		pods[ws.Name] = w.beginPod(t, &ws)
		uids[ws.Name] = w.podUID(t, &ws)
	}
	for _, p := range pods {
		p.untilNames(t, "adapter-a")
	}
	began, names := time.Now(), w.childNames(t, set)
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) {
		spec.Template.Inference.Adapters = adaptersOf("adapter-a", "adapter-b")
	})
	for _, p := range pods {
		p.untilNames(t, "adapter-a", "adapter-b")
	}
	t.Logf("from the edit to the status of the last replica: %s", time.Since(began))
	w.untilScaled(t, set, 2)
	if got := w.childNames(t, set); !slices.Equal(got, names) {
		t.Errorf("the edit replaces Workspaces %v by %v", names, got)
	}
	for name, p := range pods {
		if w.podUID(t, p.ws) != uids[name] || w.karpenter.ClaimsEver(p.ws.UID) != 1 {
			t.Errorf("the edit replaced the pod of %s, or bought a machine", name)
		}
	}
	w.removeSet(t, set)
}
