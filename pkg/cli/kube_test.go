// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const kubeconfigText = `apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, namespace: team-a}}, {name: there, context: {cluster: c, namespace: team-b}}]
clusters: [{name: c, cluster: {server: %q}}]
`

// kubeconfig writes a kubeconfig for a server.
func kubeconfig(t *testing.T, url string) *genericclioptions.ConfigFlags {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, fmt.Appendf(nil, kubeconfigText, url), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &path
	return flags
}

// apiServer serves one kind and one pod, and refuses to forward to the pod.
func apiServer(t *testing.T) *httptest.Server {
	t.Helper()
	answers := map[string]string{
		"/version":               `{"gitVersion":"v1.35.4"}`,
		"/api":                   `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":                  `{"kind":"APIGroupList","groups":[{"name":"kaito.sh","versions":[{"groupVersion":"kaito.sh/v1beta1","version":"v1beta1"}]}]}`,
		"/apis/kaito.sh/v1beta1": `{"kind":"APIResourceList","groupVersion":"kaito.sh/v1beta1","resources":[{"name":"workspaces","namespaced":true,"kind":"Workspace"}]}`,
		"/apis/kaito.sh/v1beta1/namespaces/team-a/workspaces":            `{"kind":"WorkspaceList","apiVersion":"kaito.sh/v1beta1","items":[{"metadata":{"name":"chat"}}]}`,
		"/api/v1/namespaces/team-a/pods/chat-0/log":                      "a line\n",
		"/api/v1/namespaces/team-a/pods/http:chat-0:8090/proxy/progress": `{"ready":true}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		w.Header().Add("Warning", `299 - "old fields"`)
		if !known {
			w.WriteHeader(http.StatusForbidden)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"mia cannot","code":403}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestConnect(t *testing.T) {
	flags := kubeconfig(t, apiServer(t).URL)
	var warnings bytes.Buffer
	cluster, err := connect(flags, &warnings)
	if err != nil || cluster.Namespace != "team-a" {
		t.Fatalf("%+v, %v", cluster, err)
	}
	list := &v1beta1.WorkspaceList{}
	if err := cluster.Objects.List(t.Context(), list, client.InNamespace("team-a")); err != nil || len(list.Items) != 1 {
		t.Errorf("Workspaces: %+v, %v", list.Items, err)
	}
	if n := strings.Count(warnings.String(), "old fields"); n != 1 {
		t.Errorf("the API server's warning is shown %d times, want once: %q", n, warnings.String())
	}
	version, now, err := cluster.Server.Version(t.Context())
	if err != nil || version != "v1.35.4" || now.IsZero() {
		t.Errorf("the server says version %q at %s, %v", version, now, err)
	}
	pod := types.NamespacedName{Namespace: "team-a", Name: "chat-0"}
	log, err := cluster.Pods.Log(t.Context(), pod, &corev1.PodLogOptions{Container: "chat"})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(log); err != nil || string(text) != "a line\n" {
		t.Errorf("log %q, %v", text, err)
	}
	// The API server's proxy would answer here, but a pod's NetworkPolicy blocks it.
	if answer, err := cluster.Pods.Get(t.Context(), pod, 8090, "progress"); err == nil || !strings.Contains(err.Error(), "mia cannot") {
		t.Errorf("progress %q, %v, want the API server's refusal to forward", answer, err)
	}
	if address, err := cluster.Pods.Forward(t.Context(), pod, 5000); err == nil || !strings.Contains(err.Error(), "mia cannot") {
		t.Errorf("port-forward to %q, %v, want the API server's refusal", address, err)
	}
}

func TestConnectElsewhere(t *testing.T) {
	there, nowhere, namespace := "there", "nowhere", "mine"
	flags := kubeconfig(t, "http://127.0.0.1:1")
	flags.Context = &there
	if cluster, err := connect(flags, io.Discard); err != nil || cluster.Namespace != "team-b" {
		t.Errorf("--context: %+v, %v", cluster, err)
	}
	flags = kubeconfig(t, "http://127.0.0.1:1")
	flags.Namespace = &namespace
	if cluster, err := connect(flags, io.Discard); err != nil || cluster.Namespace != "mine" {
		t.Errorf("--namespace: %+v, %v", cluster, err)
	}
	flags = kubeconfig(t, "http://127.0.0.1:1")
	flags.Context = &nowhere
	if _, err := connect(flags, io.Discard); err == nil || clientcmd.IsEmptyConfig(err) {
		t.Errorf("a context that there is not: %v", err)
	}
}

func TestConnectNowhere(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := connect(genericclioptions.NewConfigFlags(true), io.Discard); !clientcmd.IsEmptyConfig(err) {
		t.Errorf("without a kubeconfig: %v, want that there is none", err)
	}
}

func TestUnreachable(t *testing.T) {
	cluster, err := connect(kubeconfig(t, "http://127.0.0.1:1"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cluster.workspace(t.Context(), "chat")
	want := "Workspace team-a/chat: the cluster cannot be reached (dial tcp 127.0.0.1:1: connect: connection refused): see kubectl cluster-info"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// forwardsTo returns an API server that forwards to one server, as a kubelet does into a pod's network.
func forwardsTo(t *testing.T, target string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			return
		}
		streams := make(chan httpstream.Stream, 2)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
			streams <- stream
			return nil
		})
		if conn == nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for {
			select {
			case <-conn.CloseChan():
				return
			case stream := <-streams:
				if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
					go copyBoth(stream, target)
				} else {
					_ = stream.Close() // a late error does not matter
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func copyBoth(stream httpstream.Stream, target string) {
	defer func() { _ = stream.Close() }()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.Copy(conn, stream) }()
	_, _ = io.Copy(stream, conn)
}

func TestGetIsForwarded(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/progress" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, `{"ready":true}`)
	}))
	defer agent.Close()
	cluster, err := connect(kubeconfig(t, forwardsTo(t, agent.Listener.Addr().String()).URL), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	pod := types.NamespacedName{Namespace: "team-a", Name: "chat-0"}
	if answer, err := cluster.Pods.Get(t.Context(), pod, 8090, "progress"); err != nil || string(answer) != `{"ready":true}` {
		t.Errorf("progress %q, %v", answer, err)
	}
	if answer, err := cluster.Pods.Get(t.Context(), pod, 8090, "other"); err == nil {
		t.Errorf("a route that there is not answers %q", answer)
	}
}
