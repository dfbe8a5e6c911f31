// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fakeKubelet forwards its registrations.
type fakeKubelet struct {
	api.UnimplementedRegistrationServer

	registrations chan *api.RegisterRequest
}

func (f *fakeKubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	f.registrations <- r
	return &api.Empty{}, nil
}

// start makes the kubelet's socket, as a kubelet does when it starts.
func (f *fakeKubelet) start(t *testing.T, dir string) *grpc.Server {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, f)
	go func() { _ = server.Serve(listener) }()
	return server
}

func (f *fakeKubelet) next(t *testing.T) *api.RegisterRequest {
	t.Helper()
	select {
	case r := <-f.registrations:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no registration came")
		return nil
	}
}

func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	plugin := New(dir, "nvidia.com/gpu", 2, slog.New(slog.DiscardHandler))
	go func() {
		plugin.Run(ctx)
		close(ended)
	}()
	kubelet := &fakeKubelet{registrations: make(chan *api.RegisterRequest, 10)}
	// The plugin is there first, as it is on a node.
	server := kubelet.start(t, dir)
	first := kubelet.next(t)
	if first.ResourceName != "nvidia.com/gpu" || first.Endpoint != "nvidia.com-gpu.sock" || first.Version != api.Version {
		t.Errorf("registration %v, want nvidia.com/gpu at nvidia.com-gpu.sock in version %s", first, api.Version)
	}
	client := dial(t, filepath.Join(dir, first.Endpoint))
	if diff := cmp.Diff([]string{"GPU-0 Healthy", "GPU-1 Healthy"}, devices(t, client)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	answer, err := client.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
		{DevicesIds: []string{"GPU-0", "GPU-1"}}, {},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var given []string
	for _, container := range answer.ContainerResponses {
		given = append(given, container.Envs["NVIDIA_VISIBLE_DEVICES"])
	}
	if diff := cmp.Diff([]string{"GPU-0,GPU-1", ""}, given); diff != "" {
		t.Errorf("what each container is given (-want +got):\n%s", diff)
	}

	// A restarting kubelet deletes every socket in the directory.
	server.Stop()
	// The plugin may have taken its own away: the answer to its registration can be lost with the kubelet.
	if err := os.Remove(filepath.Join(dir, first.Endpoint)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	server = kubelet.start(t, dir)
	defer server.Stop()
	second := kubelet.next(t)
	if diff := cmp.Diff([]string{"GPU-0 Healthy", "GPU-1 Healthy"}, devices(t, dial(t, filepath.Join(dir, second.Endpoint)))); diff != "" {
		t.Errorf("devices after the kubelet's restart (-want +got):\n%s", diff)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the plugin goes on after its context")
	}
}

// TestDevicesFail has the kubelet see one of two devices fail, and again after it connects anew.
func TestDevicesFail(t *testing.T) {
	dir := t.TempDir()
	plugin := New(dir, "nvidia.com/gpu", 2, slog.New(slog.DiscardHandler))
	plugin.Fail(time.Now().Add(2*time.Second), 1)
	kubelet := &fakeKubelet{registrations: make(chan *api.RegisterRequest, 10)}
	server := kubelet.start(t, dir)
	defer server.Stop()
	go plugin.Run(t.Context())
	client := dial(t, filepath.Join(dir, kubelet.next(t).Endpoint))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := client.ListAndWatch(ctx, &api.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{"GPU-0 Healthy", "GPU-1 Healthy"}, {"GPU-0 Healthy", "GPU-1 Unhealthy"}} {
		if diff := cmp.Diff(want, received(t, stream)); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"GPU-0 Healthy", "GPU-1 Unhealthy"}, devices(t, client)); diff != "" {
		t.Errorf("devices of a new connection (-want +got):\n%s", diff)
	}
}

func dial(t *testing.T, socket string) api.DevicePluginClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return api.NewDevicePluginClient(conn)
}

func devices(t *testing.T, client api.DevicePluginClient) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := client.ListAndWatch(ctx, &api.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return received(t, stream)
}

func received(t *testing.T, stream grpc.ServerStreamingClient[api.ListAndWatchResponse]) []string {
	t.Helper()
	list, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, device := range list.Devices {
		out = append(out, device.ID+" "+device.Health)
	}
	return out
}
