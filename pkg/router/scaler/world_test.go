// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// patience is the longest time that a test waits for anything.
const patience = 20 * time.Second

// demands are the requests of a router.
type demands struct {
	mu   sync.Mutex
	byID map[string]router.Demand
}

func (d *demands) Demand(id string) router.Demand {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byID[id]
}

func (d *demands) set(id string, to router.Demand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byID == nil {
		d.byID = map[string]router.Demand{}
	}
	d.byID[id] = to
}

type directory struct{ current models.Current }

func (d *directory) Models() *models.Table {
	table, _ := d.current.Load()
	return table
}

func (d *directory) Next() (*models.Table, <-chan struct{}) { return d.current.Load() }

// world has routers on addresses 127.0.0.1, 127.0.0.2 and so on, with one port.
type world struct {
	t         *testing.T
	clock     *clocktesting.FakeClock
	directory *directory
	routers   []*one
	hosts     []string
	port      string
	isReady   bool
}

// one is a router.
type one struct {
	demands demands
	scaler  *Server
	server  *grpc.Server
	conn    *grpc.ClientConn
}

func chatOf(namespace string) models.Owner {
	return models.Owner{
		Namespace: namespace, Name: "chat", Kind: models.KindSet, Created: time.Unix(1, 0), Names: []string{"chat"}, IsWakeable: true,
	}
}

// begin starts routers for the sets team-a:chat and team-b:chat.
func begin(t *testing.T, routers int) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), directory: &directory{}, isReady: true}
	w.store(chatOf("team-a"), chatOf("team-b"))
	for i := range routers {
		w.hosts = append(w.hosts, fmt.Sprintf("127.0.0.%d", i+1))
	}
	for _, host := range w.hosts {
		w.routers = append(w.routers, w.start(host))
	}
	return w
}

func (w *world) store(owners ...models.Owner) { w.directory.current.Store(models.New(owners)) }

// start starts a router at an address.
func (w *world) start(host string) *one {
	w.t.Helper()
	out := &one{}
	var config net.ListenConfig
	listener, err := config.Listen(w.t.Context(), "tcp", net.JoinHostPort(host, orElse(w.port, "0")))
	if err != nil {
		w.t.Fatal(err)
	}
	_, w.port, _ = net.SplitHostPort(listener.Addr().String())
	peers, err := NewPeers("routers:"+w.port, insecure.NewCredentials(), w.clock)
	if err != nil {
		w.t.Fatal(err)
	}
	peers.lookUp = func(_ context.Context, name string) ([]string, error) {
		if name != "routers" {
			return nil, errors.New("no such host")
		}
		return slices.Clone(w.hosts), nil
	}
	peers.own = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP(host), Mask: net.CIDRMask(32, 32)}}, nil
	}
	out.scaler, err = New(Parts{
		Demands: &out.demands, Directory: w.directory, Others: peers, Log: slog.New(slog.DiscardHandler), Clock: w.clock,
		IsReady: func() bool { return w.isReady },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	out.server = grpc.NewServer()
	out.scaler.Register(out.server)
	done := make(chan error, 1)
	go func() { done <- out.server.Serve(listener) }()
	out.conn, err = grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = out.conn.Close()
		out.scaler.End()
		out.server.Stop()
		peers.Close()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return out
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// raw passes bytes. The tests write and read KEDA's messages by the numbers of their fields, independently of the server.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) {
	text, ok := v.([]byte)
	if !ok {
		return nil, errors.New("no bytes")
	}
	return text, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	into, ok := v.(*[]byte)
	if !ok {
		return errors.New("no bytes")
	}
	*into = slices.Clone(data)
	return nil
}

func (raw) Name() string { return "proto" }

// usual is the metadata of a trigger, as KEDA passes it.
func usual(change map[string]string) map[string]string {
	out := map[string]string{
		"scalerAddress": "modelberth-router-scaler.modelberth-system.svc:9003", "enableTLS": "true",
		"set": "chat", "metric": "RequestsInFlight", "target": "20",
	}
	maps.Copy(out, change)
	for key, value := range out {
		if value == "" {
			delete(out, key)
		}
	}
	return out
}

// refBytes is a ScaledObjectRef.
func refBytes(namespace string, metadata map[string]string) []byte {
	text := func(out []byte, number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(out, number, protowire.BytesType), value)
	}
	out := text(text(nil, 1, "my-scaled-object"), 2, namespace)
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		entry := text(text(nil, 1, key), 2, metadata[key])
		out = protowire.AppendBytes(protowire.AppendTag(out, 3, protowire.BytesType), entry)
	}
	return out
}

// metricsBytes is a GetMetricsRequest.
func metricsBytes(ref []byte, name string) []byte {
	out := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), ref)
	return protowire.AppendString(protowire.AppendTag(out, 2, protowire.BytesType), name)
}

func (o *one) call(t *testing.T, method string, in []byte) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []byte
	err := o.conn.Invoke(ctx, "/externalscaler.ExternalScaler/"+method, in, &out, grpc.WaitForReady(true))
	return out, err
}
