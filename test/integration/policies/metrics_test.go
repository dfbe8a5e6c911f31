// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/options"
)

// scrapers request metrics: one has the chart's role for it, the other has none.
const scrapers = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: team-a}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: team-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus-modelberth}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: modelberth-metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: team-a}]
`

// TestScrapesNeedPermission runs the controller with the chart's privileges, and asks it for its metrics.
func TestScrapesNeedPermission(t *testing.T) {
	if err := bringIn(t.Context(), "rbac.yaml", scrapers); err != nil {
		t.Fatal(err)
	}
	address := serveMetrics(t)
	may, mayNot := tokenOf(t, "prometheus"), tokenOf(t, "stranger")
	tests := []struct {
		reason, method, token string
		want                  int
	}{
		{"nobody", http.MethodGet, "", http.StatusUnauthorized},
		{"with a token that is none", http.MethodGet, "invented", http.StatusUnauthorized},
		{"a stranger", http.MethodGet, mayNot, http.StatusForbidden},
		{"Prometheus", http.MethodGet, may, http.StatusOK},
		{"Prometheus, for what its role does not name", http.MethodPost, may, http.StatusForbidden},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			status, body := scrape(t, test.method, "https://"+address+"/metrics", test.token)
			if status != test.want {
				t.Errorf("answered %d, want %d: %s", status, test.want, body)
			}
			if shown := strings.Contains(body, "\nmodelberth_"); shown != (test.want == http.StatusOK) {
				t.Errorf("metrics shown: %t, with status %d:\n%s", shown, status, body)
			}
		})
	}
	t.Run("TLS 1.1 is refused, and HTTP/2 is not offered", func(t *testing.T) { checkTLS(t, address) })
}

func checkTLS(t *testing.T, address string) {
	t.Helper()
	for _, test := range []struct {
		version uint16
		want    bool
	}{{tls.VersionTLS11, false}, {tls.VersionTLS12, true}, {tls.VersionTLS13, true}} {
		dialer := tls.Dialer{Config: &tls.Config{
			InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: test.version, NextProtos: []string{"h2", "http/1.1"},
		}}
		connection, err := dialer.DialContext(t.Context(), "tcp", address)
		if (err == nil) != test.want {
			t.Errorf("%s accepted: %t, want %t (%v)", tls.VersionName(test.version), err == nil, test.want, err)
		}
		if secure, isSecure := connection.(*tls.Conn); isSecure && err == nil {
			if got := secure.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
				t.Errorf("%s: the server chose protocol %q, want http/1.1", tls.VersionName(test.version), got)
			}
			closeNow(t, secure)
		}
	}
}

// serveMetrics starts the controller as the chart's ServiceAccount and returns the address of its metrics.
func serveMetrics(t *testing.T) string {
	t.Helper()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	closeNow(t, free)
	config := rest.CopyConfig(api.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: controller, Groups: []string{"system:serviceaccounts", "system:authenticated"},
	}
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := app.NewManager(ctx, config, options.Controller{
		Metrics: options.Metrics{Address: address}, HealthAddress: "0", Workers: 1, QPS: 20, Burst: 30, CapacityBackend: options.BackendExisting,
		AgentImage: "registry.example/agent:test", HubEndpoint: "http://hub.example", MultiNode: isolation.Disabled,
	}, app.Hooks{})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended: %v", err)
		}
	})
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			closeNow(t, connection)
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("nothing listens at %s: %v", address, err)
	}
	return address
}

func closeNow(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func tokenOf(t *testing.T, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
	request := &authenticationv1.TokenRequest{}
	if err := api.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func scrape(t *testing.T, method, url, token string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
