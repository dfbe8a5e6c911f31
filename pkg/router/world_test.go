// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router/balance"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// deadline is the longest time that a test waits for anything.
const deadline = 20 * time.Second

const secretA = "sk-tenant-a-0123456789"

type directory struct{ table *models.Table }

func (d directory) Models() *models.Table { return d.table }

func (d directory) Next() (*models.Table, <-chan struct{}) { return d.table, nil }

// front starts a router for owners.
func front(t *testing.T, settings Settings, keys []limit.Key, owners ...models.Owner) (*httptest.Server, *balance.Counters) {
	t.Helper()
	return frontAt(t, clock.RealClock{}, settings, keys, owners...)
}

// frontAt is front with a clock of the test's own.
func frontAt(
	t *testing.T, now clock.WithTicker, settings Settings, keys []limit.Key, owners ...models.Owner,
) (*httptest.Server, *balance.Counters) {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	known := limit.NewKeys(1)
	known.Set(keys)
	counters := &balance.Counters{}
	r := New(settings, Parts{
		Directory: directory{models.New(owners)}, Keys: known, Counters: counters, Metrics: metrics,
		Log: slog.New(slog.DiscardHandler), Clock: now,
	})
	server := httptest.NewUnstartedServer(r)
	server.Config = Server(r)
	server.Start()
	t.Cleanup(server.Close)
	return server, counters
}

func open() Settings {
	s := Defaults()
	s.IsOpen = true
	return s
}

// engine starts a replica and returns its address.
func engine(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// dead returns an address that refuses connections.
func dead(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func owner(namespace, name string, replicas ...string) models.Owner {
	return models.Owner{Namespace: namespace, Name: name, Kind: "Workspace", Created: time.Unix(1, 0), Names: []string{name}, Replicas: replicas}
}

func key(t *testing.T, fields map[string]string) limit.Key {
	t.Helper()
	data := map[string][]byte{}
	for name, value := range fields {
		data[name] = []byte(value)
	}
	out, err := limit.Parse("tenant-a", data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func post(t *testing.T, url, text string, headers ...string) (int, string, http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body), answer.Header
}

func codeOf(body string) string {
	var out struct {
		Error struct{ Code string }
	}
	_ = json.Unmarshal([]byte(body), &out)
	return out.Error.Code
}
