// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin announces imaginary devices to a kubelet, so scheduler and kubelet count and hand them out
// like real ones. It must not know the devices' meaning.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerDeadline bounds one call to the kubelet.
const registerDeadline = 5 * time.Second

// retryPause is how long a failed registration rests.
const retryPause = time.Second

// Plugin announces count devices of one resource. They are healthy until some of them fail.
type Plugin struct {
	api.UnimplementedDevicePluginServer

	dir      string
	resource string
	count    int
	// fails is when all but left devices become unhealthy; zero is never.
	fails time.Time
	left  int
	log   *slog.Logger
}

// New returns a plugin for the kubelet with the plugin directory dir.
func New(dir, resource string, count int, log *slog.Logger) *Plugin {
	return &Plugin{dir: dir, resource: resource, count: count, log: log.With("resource", resource)}
}

// Fail has all but left devices become unhealthy at a time. It must be called before Run.
func (p *Plugin) Fail(at time.Time, left int) { p.fails, p.left = at, left }

// Run registers with the kubelet, and again each time the kubelet starts again, until ctx ends.
// until ctx ends.
func (p *Plugin) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.session(ctx); err != nil {
			p.log.Info("device plugin session ended", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// session serves and registers once, and returns when the kubelet has made its socket again: at its start it deletes
// all sockets of plugins.
func (p *Plugin) session(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return fmt.Errorf("making the plugin directory: %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the plugin directory: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(p.dir); err != nil {
		return fmt.Errorf("watching %s: %w", p.dir, err)
	}
	kubelet := filepath.Join(p.dir, "kubelet.sock")
	if _, err := os.Stat(kubelet); err != nil {
		if err := awaitCreation(ctx, watcher, kubelet); err != nil {
			return err
		}
	}
	met, err := os.Stat(kubelet)
	if err != nil {
		return fmt.Errorf("checking the kubelet's socket: %w", err)
	}
	server, err := p.serve(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := p.register(ctx, kubelet); err != nil {
		return err
	}
	p.log.Info("devices announced", "count", p.count)
	return awaitRenewal(ctx, watcher, kubelet, met)
}

// awaitRenewal returns when the socket at path differs from met. Events about met may still be under way, and arrive
// after its end.
func awaitRenewal(ctx context.Context, watcher *fsnotify.Watcher, path string, met os.FileInfo) error {
	for {
		if err := awaitCreation(ctx, watcher, path); err != nil {
			return err
		}
		now, err := os.Stat(path)
		if err == nil && (!os.SameFile(met, now) || !met.ModTime().Equal(now.ModTime())) {
			return nil
		}
	}
}

func awaitCreation(ctx context.Context, watcher *fsnotify.Watcher, path string) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-watcher.Errors:
			return fmt.Errorf("watching for %s: %w", path, err)
		case event, ok := <-watcher.Events:
			if !ok {
				return fmt.Errorf("watching for %s: the watch ended", path)
			}
			if event.Name == path && event.Has(fsnotify.Create) {
				return nil
			}
		}
	}
}

func (p *Plugin) socket() string {
	return filepath.Join(p.dir, strings.ReplaceAll(p.resource, "/", "-")+".sock")
}

func (p *Plugin) serve(ctx context.Context) (*grpc.Server, error) {
	if err := os.Remove(p.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the old socket: %w", err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", p.socket())
	if err != nil {
		return nil, fmt.Errorf("listening for the kubelet: %w", err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

func (p *Plugin) register(ctx context.Context, kubelet string) error {
	ctx, cancel := context.WithTimeout(ctx, registerDeadline)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting to the kubelet: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     filepath.Base(p.socket()),
		ResourceName: p.resource,
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("registering %s with the kubelet: %w", p.resource, err)
	}
	return nil
}

// GetDevicePluginOptions implements the plugin API.
func (*Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements the plugin API. The devices change at most once, so
// the last answer lasts until the kubelet hangs up.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	send := func() error {
		if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices(time.Now())}); err != nil {
			return fmt.Errorf("listing %s: %w", p.resource, err)
		}
		return nil
	}
	if err := send(); err != nil {
		return err
	}
	if wait := time.Until(p.fails); !p.fails.IsZero() && wait > 0 {
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(wait):
		}
		if err := send(); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// Allocate implements the plugin API. The container gets only the names of its devices.
func (*Plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, nil
}

func (p *Plugin) devices(now time.Time) []*api.Device {
	haveFailed := !p.fails.IsZero() && !now.Before(p.fails)
	devices := make([]*api.Device, p.count)
	for i := range devices {
		devices[i] = &api.Device{ID: fmt.Sprintf("GPU-%d", i), Health: api.Healthy}
		if haveFailed && i >= p.left {
			devices[i].Health = api.Unhealthy
		}
	}
	return devices
}
