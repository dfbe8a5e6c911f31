// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package routerprobe

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/pkg/comparison"
)

// pod returns a router on an address of the loopback network.
func pod(name, address string, change ...func(*corev1.Pod)) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "router"}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address},
	}
	for _, each := range change {
		each(out)
	}
	return out
}

func portOf(t *testing.T, listener net.Listener) int {
	t.Helper()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the address %s has no port", listener.Addr())
	}
	return address.Port
}

// world has routers on 127.0.0.1, 127.0.0.2 and so on, all on one port.
type world struct {
	*Reader
	clock *clocktesting.FakeClock
	// asked are the requests, lists the reads of pods, and onList is called before each.
	asked  chan *http.Request
	lists  int
	onList func(lists int, c client.WithWatch)
}

func newWorld(t *testing.T, settings Settings, pods []client.Object, handlers ...http.HandlerFunc) *world {
	t.Helper()
	w := &world{clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), asked: make(chan *http.Request, 100)}
	for i, handler := range handlers {
		address := fmt.Sprintf("127.0.0.%d:%d", i+1, settings.Port)
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, req *http.Request) {
			w.asked <- req
			handler(answer, req)
		}))
		_ = server.Listener.Close()
		server.Listener = listener
		settings.Port = portOf(t, listener)
		if settings.IsPlain {
			server.Start()
		} else {
			server.StartTLS()
		}
		t.Cleanup(server.Close)
		if settings.CAFile != "" {
			text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			if err := os.WriteFile(settings.CAFile, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pods...).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			w.lists++
			if w.onList != nil {
				w.onList(w.lists, c)
			}
			return c.List(ctx, list, options...)
		},
	})
	settings.Namespace, settings.Labels = "system", map[string]string{"app": "router"}
	if settings.TokenFile == "" {
		settings.TokenFile = filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(settings.TokenFile, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.Reader = New(settings, c, w.clock)
	return w
}

var chat = types.NamespacedName{Namespace: "team", Name: "chat"}

// reports returns a handler that reports two sets, with the template t1.
func reports(served int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(comparison.Report{Sets: []comparison.Set{
			{Namespace: "team", Name: "chat", Template: "t1", Pair: comparison.Pair{New: comparison.Counts{Served: served}}},
			{Namespace: "other", Name: "chat", Template: "t1", Pair: comparison.Pair{New: comparison.Counts{Failed: 7}}},
		}})
	}
}

// TestRoutersAreSummed: the counts of all routers count together, once in an interval, and those of another template do
// not.
func TestRoutersAreSummed(t *testing.T) {
	pods := []client.Object{pod("r-1", "127.0.0.1"), pod("r-2", "127.0.0.2")}
	w := newWorld(t, Settings{}, pods, reports(10), reports(20))
	want := comparison.Pair{New: comparison.Counts{Served: 30}}
	for range 3 {
		if got, err := w.Compare(t.Context(), chat, "t1"); err != nil || got != want {
			t.Errorf("the counts are %+v (%v), want %+v", got, err, want)
		}
	}
	if got, err := w.Compare(t.Context(), chat, "t2"); err != nil || got != (comparison.Pair{}) {
		t.Errorf("another template has %+v (%v)", got, err)
	}
	if len(w.asked) != 2 || w.lists != 2 {
		t.Errorf("%d requests and %d lists, want 2 and 2", len(w.asked), w.lists)
	}
	w.clock.Step(UsualInterval)
	if _, err := w.Compare(t.Context(), chat, "t1"); err != nil || len(w.asked) != 4 {
		t.Errorf("%d requests after the interval (%v), want 4", len(w.asked), err)
	}
	req := <-w.asked
	if req.URL.Path != comparison.Path || req.Header.Get("Authorization") != "Bearer secret" {
		t.Errorf("the request is %s with %v", req.URL, req.Header)
	}
}

// TestOneSilentRouterIsEnough: a router that cannot be read makes all counts unknown, and the words do not change.
func TestOneSilentRouterIsEnough(t *testing.T) {
	good := reports(10)
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, c := range []struct {
		reason string
		other  http.HandlerFunc
		want   string
	}{
		{"no permission", status(http.StatusForbidden), "router r-2 answers with status 403"},
		{"an earlier version", status(http.StatusNotFound), "router r-2 answers with status 404"},
		{"a redirect", func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, "/elsewhere", http.StatusFound) }, "router r-2 answers with status 302"},
		{"no JSON", says("<html>"), "router r-2 has counts that cannot be read"},
		{"impossible counts", says(`{"sets":[{"new":{"failed":-1}}]}`), "router r-2 has counts that cannot be read"},
		{"an endless answer", func(w http.ResponseWriter, req *http.Request) {
			_, _ = w.Write([]byte(`{"sets":[]}`))
			for req.Context().Err() == nil {
				if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
					return
				}
			}
		}, "router r-2 has counts that cannot be read"},
		{"too many sets", says(`{"sets":[` + strings.Repeat("{},", mostSets) + `{}]}`), "router r-2 has counts that cannot be read"},
		{"a broken answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "does not answer on port"},
		{"silence", func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }, "does not answer on port"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Settings{IsPlain: true}, []client.Object{pod("r-1", "127.0.0.1"), pod("r-2", "127.0.0.2")}, good, c.other)
			_, err := w.Compare(t.Context(), chat, "t1")
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "127.0.0.") {
				t.Errorf("error %v, want %q", err, c.want)
			}
			for len(w.asked) > 0 {
				if req := <-w.asked; req.Header.Get("Authorization") != "" {
					t.Error("the token is sent in plain text")
				}
			}
		})
	}
}

// TestOnlyLiveRoutersCount: an address counts only while a running pod has it.
func TestOnlyLiveRoutersCount(t *testing.T) {
	ended := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
	leaving := func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/wait"}
	}
	stranger := func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "chat"} }
	elsewhere := func(pod *corev1.Pod) { pod.Namespace = "team" }
	for reason, change := range map[string]func(*corev1.Pod){
		"a pod that has ended": ended, "a pod that is being deleted": leaving, "a pod without the label": stranger,
		"a pod of a tenant": elsewhere, "a pod without an address": func(pod *corev1.Pod) { pod.Status.PodIP = "" },
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, Settings{IsPlain: true}, []client.Object{pod("r-1", "127.0.0.1", change)}, reports(10))
			if _, err := w.Compare(t.Context(), chat, "t1"); err == nil || err.Error() != errNone.Error() || len(w.asked) > 0 {
				t.Errorf("error %v after %d requests, want %q", err, len(w.asked), errNone)
			}
		})
	}
}

// TestReplacedRouterIsNotBelieved: if a router is gone after its answer, the answer may be another pod's.
func TestReplacedRouterIsNotBelieved(t *testing.T) {
	for reason, replace := range map[string]func(t *testing.T, c client.WithWatch){
		"it is deleted": func(t *testing.T, c client.WithWatch) {
			t.Helper()
			if err := c.Delete(t.Context(), pod("r-2", "")); err != nil {
				t.Error(err)
			}
		},
		"it has another address": func(t *testing.T, c client.WithWatch) {
			t.Helper()
			if err := c.Status().Update(t.Context(), pod("r-2", "127.0.0.3")); err != nil {
				t.Error(err)
			}
		},
		"another pod has its name": func(t *testing.T, c client.WithWatch) {
			t.Helper()
			if err := c.Update(t.Context(), pod("r-2", "127.0.0.2", func(pod *corev1.Pod) { pod.UID = "another" })); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, Settings{IsPlain: true}, []client.Object{pod("r-1", "127.0.0.1"), pod("r-2", "127.0.0.2")}, reports(10), reports(20))
			w.onList = func(lists int, c client.WithWatch) {
				if lists == 2 {
					replace(t, c)
				}
			}
			if _, err := w.Compare(t.Context(), chat, "t1"); err == nil || err.Error() != "router r-2 was replaced meanwhile" {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestCertificates: with an authority, only a router with its certificate is believed.
func TestCertificates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	w := newWorld(t, Settings{CAFile: file, ServerName: "example.com"}, []client.Object{pod("r-1", "127.0.0.1")}, reports(10))
	if got, err := w.Compare(t.Context(), chat, "t1"); err != nil || got.New.Served != 10 {
		t.Errorf("with the authority: %+v, %v", got, err)
	}
	w.settings.ServerName = "router.example"
	w.clock.Step(UsualInterval)
	if _, err := w.Compare(t.Context(), chat, "t1"); err == nil || err.Error() != "router r-1 does not answer on port "+strconv.Itoa(w.settings.Port) {
		t.Errorf("with another name: %v", err)
	}
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(UsualInterval)
	if _, err := w.Compare(t.Context(), chat, "t1"); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("without the authority: %v", err)
	}
}

// TestManyRouters: the number of reads is bounded.
func TestManyRouters(t *testing.T) {
	var pods []client.Object
	for i := range mostRouters + 1 {
		pods = append(pods, pod(fmt.Sprintf("r-%d", i), "127.0.0.1"))
	}
	w := newWorld(t, Settings{IsPlain: true}, pods, reports(10))
	if _, err := w.Compare(t.Context(), chat, "t1"); err == nil || len(w.asked) > 0 {
		t.Errorf("error %v after %d requests", err, len(w.asked))
	}
}

// TestEndedPassBlamesNoRouter: a pass that ends says nothing about the routers.
func TestEndedPassBlamesNoRouter(t *testing.T) {
	w := newWorld(t, Settings{IsPlain: true}, []client.Object{pod("r-1", "127.0.0.1")}, reports(10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Compare(ctx, chat, "t1"); err == nil {
		t.Error("no error")
	}
	got, err := w.Compare(t.Context(), chat, "t1")
	if diff := cmp.Diff(comparison.Pair{New: comparison.Counts{Served: 10}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
