// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// patience is the longest time that a test waits for anything.
const patience = 20 * time.Second

func TestValidate(t *testing.T) {
	cases := []struct {
		reason, args, want string
	}{
		{"keys", "--key-namespace=keys", ""},
		{"open", "--open", ""},
		{"neither", "", "set either --key-namespace or --open"},
		{"both", "--open --key-namespace=keys", "set either --key-namespace or --open"},
		{"no router", "--open --routers=0", "--routers, --max-connections, --max-body-bytes and --request-deadline must be above 0"},
		{"no memory for answers", "--open --resume-memory-bytes=0", "--resume-memory-bytes must be above 0"},
		{"requests that wait", "--open --hold-requests=10", ""},
		{"gateways", "--open --ext-proc-bind-address=:9002 --ext-proc-cert-dir=/certificate", ""},
		{"a certificate for no gateway", "--open --ext-proc-cert-dir=/certificate", "--ext-proc-insecure and --ext-proc-cert-dir need --ext-proc-bind-address"},
		{"a certificate without TLS", "--open --ext-proc-bind-address=:9002 --ext-proc-insecure --ext-proc-cert-dir=/certificate", "--ext-proc-cert-dir has no effect with --ext-proc-insecure: remove one of them"},
		{"KEDA", "--open --scaler-bind-address=:9003 --scaler-cert-dir=/certificate --scaler-verify-clients --scaler-peers=routers:9003", ""},
		{"other routers without KEDA", "--open --scaler-peers=routers:9003", "--scaler-insecure, --scaler-cert-dir, --scaler-verify-clients and --scaler-peers need --scaler-bind-address"},
		{"a certificate for KEDA without TLS", "--open --scaler-bind-address=:9003 --scaler-insecure --scaler-cert-dir=/certificate", "--scaler-cert-dir and --scaler-verify-clients have no effect with --scaler-insecure: remove them, or --scaler-insecure"},
		{"no authority for KEDA", "--open --scaler-bind-address=:9003 --scaler-verify-clients", "--scaler-verify-clients needs --scaler-cert-dir, with ca.crt"},
		{"fewer than none", "--open --hold-requests=-1", "--hold-requests must not be below 0"},
		{"a wait as long as a request", "--open --hold-requests=10 --hold-time=30m", "--hold-bytes must be above 0, and --hold-time between 0 and --request-deadline"},
		{"a short deadline without waits", "--open --request-deadline=5m", ""},
		{"tokens where nobody needs a key", "--open --token-audience=router", "--token-audience has no effect with --open: remove one of them"},
		{"limits of accounts that are not admitted", "--key-namespace=keys --token-requests-per-minute=1", "--token-requests-per-minute and --token-tokens-per-minute need --token-audience"},
		{"limits below zero", "--key-namespace=keys --token-audience=router --token-requests-per-minute=-1", "--token-requests-per-minute and --token-tokens-per-minute must not be below 0"},
		{"tokens beside keys", "--key-namespace=keys --token-audience=router --token-requests-per-minute=1", ""},
		{"a certificate for plain HTTP", "--open --metrics-insecure --metrics-cert-dir=/certs", "--metrics-cert-dir has no effect with --metrics-insecure: remove one of them"},
		{"no time", "--open --request-deadline=0s", "--routers, --max-connections, --max-body-bytes and --request-deadline must be above 0"},
		{"a body for which the memory never suffices", "--open --body-memory-bytes=100000000", "--body-memory-bytes must be at least six times --max-body-bytes"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			var o Options
			flags := flag.NewFlagSet("", flag.ContinueOnError)
			o.Bind(flags)
			if err := flags.Parse(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := o.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"--nonsense"}, {}} {
		var stderr strings.Builder
		if code := Main(args, &stderr); code != 2 || stderr.Len() == 0 {
			t.Errorf("%v: exit code %d and %q, want 2 and a message", args, code, stderr.String())
		}
	}
}

// cluster is a directory with one model. Closing synced completes its first read.
type cluster struct {
	table  *models.Table
	synced chan struct{}
	// ended is closed when the watch ends.
	ended chan struct{}
}

func (c *cluster) Models() *models.Table { return c.table }

func (c *cluster) Next() (*models.Table, <-chan struct{}) { return c.table, nil }

func (c *cluster) Run(ctx context.Context, ready func()) error {
	defer close(c.ended)
	select {
	case <-c.synced:
		ready()
	case <-ctx.Done():
		return nil
	}
	<-ctx.Done()
	return nil
}

// free returns an unused address.
func free(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// running is a started router with its cluster.
type running struct {
	options Options
	cluster *cluster
	end     context.CancelFunc
	result  chan error
}

func start(t *testing.T, engine http.HandlerFunc) *running {
	t.Helper()
	return startWith(t, engine, func(*Options) {})
}

// startWith is start with other options.
func startWith(t *testing.T, engine http.HandlerFunc, change func(*Options)) *running {
	t.Helper()
	replica := httptest.NewServer(engine)
	t.Cleanup(replica.Close)
	var o Options
	o.Bind(flag.NewFlagSet("", flag.ContinueOnError))
	o.Settings.IsOpen, o.MetricsInsecure = true, true
	o.Routers, o.MaxConnections, o.DrainDelay = 1, 100, 2*time.Second
	o.Address, o.MetricsAddress, o.ProbeAddress = free(t), free(t), free(t)
	change(&o)
	table := models.New([]models.Owner{{
		Namespace: "a", Name: "m", Names: []string{"m"}, Replicas: []string{strings.TrimPrefix(replica.URL, "http://")},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r := &running{options: o, cluster: &cluster{table, make(chan struct{}), make(chan struct{})}, end: cancel, result: make(chan error, 1)}
	go func() {
		r.result <- ServeWith(ctx, o, Cluster{Directory: r.cluster, Keys: limit.NewKeys(1)}, slog.New(slog.DiscardHandler))
	}()
	return r
}

// ends waits until the router has ended without an error.
func (r *running) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.result:
		if err != nil {
			t.Errorf("the router ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the router does not end")
	}
}

// get returns the status of a GET request; 0 if nobody listens.
func get(t *testing.T, address, path string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func eventually(t *testing.T, want int, address, path string) {
	t.Helper()
	ticker, until := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer ticker.Stop()
	for {
		got := get(t, address, path)
		if got == want {
			return
		}
		select {
		case <-ticker.C:
		case <-until:
			t.Fatalf("%s answers %d, want %d", path, got, want)
		}
	}
}

// begun is an answer whose headers have arrived.
type begun struct {
	status int
	// isLast: the connection ends with this answer.
	isLast bool
	body   *bufio.Reader
}

func post(t *testing.T, address string) begun {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/completions", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return begun{answer.StatusCode, answer.Close, bufio.NewReader(answer.Body)}
}

// TestLife follows a router from its start through readiness and draining to its end. One answer is still running when
// the draining begins.
func TestLife(t *testing.T) {
	finish := make(chan struct{})
	r := start(t, func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-finish:
		case <-req.Context().Done():
		}
		fmt.Fprintln(w, "last")
	})
	probes := r.options.ProbeAddress
	eventually(t, http.StatusOK, probes, "/healthz")
	if got := get(t, probes, "/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("readiness before the cluster is read: %d", got)
	}
	close(r.cluster.synced)
	eventually(t, http.StatusOK, probes, "/readyz")
	if got := get(t, r.options.MetricsAddress, "/metrics"); got != http.StatusOK {
		t.Errorf("metrics: %d", got)
	}
	long := post(t, r.options.Address)
	if line, err := long.body.ReadString('\n'); line != "first\n" || long.isLast {
		t.Fatalf("the answer begins with %q (%v), Connection: close %t", line, err, long.isLast)
	}

	r.end()
	eventually(t, http.StatusServiceUnavailable, probes, "/readyz")
	if got := get(t, probes, "/healthz"); got != http.StatusOK {
		t.Errorf("a router that drains is not alive: %d", got)
	}
	if last := post(t, r.options.Address); !last.isLast || last.status != http.StatusOK {
		t.Errorf("while the router drains, an answer is %d with Connection: close %t, want 200 and true", last.status, last.isLast)
	}
	eventually(t, 0, r.options.Address, "/v1/models")
	select {
	case <-r.cluster.ended:
		t.Error("the watch ended before the answer")
	case err := <-r.result:
		t.Errorf("the router ended before the answer: %v", err)
	default:
	}
	close(finish)
	if rest, err := io.ReadAll(long.body); string(rest) != "last\n" || err != nil {
		t.Errorf("the answer ends with %q (%v)", rest, err)
	}
	r.ends(t)
}

// TestLastRequestOfAConnection: a client sends the next request on the connection of an answer that began before the
// router drained and ended after it closed its door. The answer could not announce the end of the connection.
func TestLastRequestOfAConnection(t *testing.T) {
	finish := make(chan struct{})
	r := startWith(t, func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-finish:
		case <-req.Context().Done():
		}
	}, func(o *Options) { o.DrainDelay = 0 })
	close(r.cluster.synced)
	eventually(t, http.StatusOK, r.options.ProbeAddress, "/readyz")
	var dialer net.Dialer
	connection, err := dialer.DialContext(t.Context(), "tcp", r.options.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(connection)
	ask := func() *http.Response {
		t.Helper()
		const body = `{"model":"m"}`
		fmt.Fprintf(connection, "POST /v1/completions HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		return answer
	}
	for i, want := range []bool{false, true} {
		answer := ask()
		if answer.StatusCode != http.StatusOK || answer.Close != want {
			t.Errorf("answer %d is %d with Connection: close %t, want 200 and %t", i, answer.StatusCode, answer.Close, want)
		}
		if i == 0 {
			r.end()
			eventually(t, 0, r.options.Address, "/v1/models")
			close(finish)
		}
		_, err := io.Copy(io.Discard, answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
	}
	r.ends(t)
}

// TestAddressInUse: a router that cannot listen ends with the reason.
func TestAddressInUse(t *testing.T) {
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	var o Options
	o.Bind(flag.NewFlagSet("", flag.ContinueOnError))
	o.Address, o.MetricsAddress, o.ProbeAddress, o.MaxConnections = taken.Addr().String(), free(t), free(t), 1
	o.MetricsInsecure = true
	c := &cluster{models.New(nil), make(chan struct{}), make(chan struct{})}
	err = ServeWith(t.Context(), o, Cluster{Directory: c, Keys: limit.NewKeys(1)}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "listening on "+o.Address) {
		t.Errorf("the router ended with %v", err)
	}
}
