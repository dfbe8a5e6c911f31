// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/test/localcloud/bootstrap"
	"github.com/modelberth/modelberth/test/localcloud/cgroup"
	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/controlplane"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/machine"
	"github.com/modelberth/modelberth/test/localcloud/netspace"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/localcloud/registry"
	"github.com/modelberth/modelberth/test/localcloud/sku"
	"github.com/modelberth/modelberth/test/script"
)

// pollInterval is how often a starting program is asked whether it is ready.
const pollInterval = 100 * time.Millisecond

// SandboxImage holds every pod's namespaces.
func SandboxImage() string {
	return fmt.Sprintf("%s:%d/modelberth/pause:dev", layout.RegistryHost, layout.RegistryPort)
}

// startNetwork makes the private network, the host's way in, and all files.
func (s *Supervisor) startNetwork(ctx context.Context) error {
	space, err := netspace.New()
	if err != nil {
		return err
	}
	s.space = space
	s.closers = append(s.closers, func() error { space.Close(); return nil })
	if err := space.Bridge(layout.ControlAddress, layout.PrefixBits); err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", s.options.APIPort))
	if err != nil {
		return fmt.Errorf("listening for the API server's clients (choose another --api-port): %w", err)
	}
	s.closers = append(s.closers, listener.Close)
	s.apiURL = "https://" + listener.Addr().String()
	target := fmt.Sprintf("%s:%d", layout.ControlAddress, layout.APIServerPort)
	go proxy(listener, func(ctx context.Context) (net.Conn, error) { return space.Dial(ctx, target) })
	for _, dir := range []string{s.options.Layout.Logs(), s.options.Layout.Machines(), s.options.Layout.Processes(), s.options.Layout.Blobs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
	}
	s.authority, err = s.plan.WriteFiles(s.apiURL, time.Now())
	return err
}

// startCloud opens the machine service, the registry and the hub.
func (s *Supervisor) startCloud(ctx context.Context) error {
	if err := s.prepareCgroups(); err != nil {
		return err
	}
	catalogue, err := sku.Load(s.options.SKUs)
	if err != nil {
		return err
	}
	s.service = cloud.NewService(cloud.Options{
		Catalogue: catalogue,
		Runner:    s.runner(catalogue),
		Objects:   s.options.Hollow,
		Script:    func() (script.Script, string, error) { return script.Load(s.options.Layout.Script()) },
		Records:   s.options.Layout.Machines(),
		Bill:      s.options.Layout.Bill(),
		Log:       s.log,
	})
	s.registry = registry.Handler(s.options.Layout.Blobs())
	if err := s.serveInside(ctx, layout.RegistryPort, s.registry); err != nil {
		return err
	}
	if s.options.Hub != nil {
		if err := s.serveInside(ctx, layout.HubPort, s.options.Hub); err != nil {
			return err
		}
	}
	if err := s.serveSocket(ctx); err != nil {
		return err
	}
	s.progress.wait("the pod image to be in the registry")
	_, err = registry.Push(ctx, cloud.UnixTransport(s.options.Layout.Socket()), s.options.PauseImage, SandboxImage())
	return err
}

func (s *Supervisor) runner(catalogue sku.Catalogue) cloud.Runner {
	hosts := &machine.Runner{
		Layout:       s.options.Layout,
		Space:        s.space,
		Cgroups:      s.cgroups,
		Authority:    s.authority,
		Self:         s.options.Programs.Self,
		BinDir:       s.options.Programs.BinDir,
		SandboxImage: SandboxImage(),
		APIServer:    controlplane.APIServerURL(),
	}
	if !s.options.Hollow {
		return hosts
	}
	return machine.Objects{System: hosts, Catalogue: catalogue, Kube: s.client}
}

func (s *Supervisor) client() client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kube
}

// prepareCgroups makes the parent of all nodes' groups, after recording its changes to the host's root group.
func (s *Supervisor) prepareCgroups() error {
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	s.cgroups = host
	before, err := host.Controllers()
	if err != nil {
		return err
	}
	if err := cgroup.SaveControllers(s.options.Layout.Controllers(), before); err != nil {
		return err
	}
	return host.Create(s.options.Layout.Cgroup())
}

// startAPIServer starts the store and the API server and waits until it answers.
func (s *Supervisor) startAPIServer(ctx, planes context.Context) error {
	apiserver := s.plan.APIServer()
	s.keep(planes, s.plan.Etcd())
	s.keep(planes, apiserver)
	if err := s.awaitReady(ctx, apiserver); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.plan.AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("reading the access to the API server: %w", err)
	}
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	// Object-only nodes register through it, many at a time.
	config.QPS = -1
	config.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return s.space.Dial(ctx, address) }
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kube = kube
	return nil
}

// startControllers starts the clients of the API server. Karpenter comes after its API: without it, it would end at
// once.
func (s *Supervisor) startControllers(ctx, planes context.Context) error {
	s.keep(planes, s.plan.ControllerManager())
	s.keep(planes, s.plan.Scheduler())
	s.keep(planes, s.plan.CoreDNS())
	s.progress.wait("the cluster's first objects")
	if err := bootstrap.Apply(ctx, s.kube); err != nil {
		return err
	}
	s.keep(planes, s.plan.Karpenter())
	if s.options.Hollow {
		s.keep(planes, s.plan.HollowKubelets())
	}
	return nil
}

func (s *Supervisor) startSystemNode(ctx context.Context) error {
	if _, err := s.service.System(SystemNode, map[string]string{"local.modelberth.dev/system": "true"}); err != nil {
		return err
	}
	return s.await(ctx, "node "+SystemNode+" to be ready", func(ctx context.Context) error {
		var node corev1.Node
		if err := s.kube.Get(ctx, client.ObjectKey{Name: SystemNode}, &node); err != nil {
			return err
		}
		if reason := unreadiness(node); reason != "" {
			return errors.New(reason)
		}
		return nil
	})
}

func (s *Supervisor) awaitHealth(ctx context.Context) error {
	programs := []controlplane.Program{s.plan.ControllerManager(), s.plan.Scheduler(), s.plan.CoreDNS(), s.plan.Karpenter()}
	if s.options.Hollow {
		programs = append(programs, s.plan.HollowKubelets())
	}
	for _, program := range programs {
		if err := s.awaitReady(ctx, program); err != nil {
			return err
		}
	}
	return nil
}

// keep keeps a program running inside the private network.
func (s *Supervisor) keep(ctx context.Context, program controlplane.Program) {
	keeper := process.NewKeeper(program.Command, inside{space: s.space, records: s.options.Layout.Processes(), name: program.Name}, s.log)
	s.mu.Lock()
	s.keepers = append(s.keepers, keeper)
	s.mu.Unlock()
	s.running.Go(func() { keeper.Run(ctx) })
}

func (s *Supervisor) awaitReady(ctx context.Context, program controlplane.Program) error {
	probe := newProber(s.space, program.Ready)
	err := s.await(ctx, program.Name+" to be ready", probe.ask)
	if err != nil {
		return fmt.Errorf("%w; its log is %s", err, program.Log)
	}
	return nil
}

// await polls and shows the reason in the progress.
func (s *Supervisor) await(ctx context.Context, what string, ready func(context.Context) error) error {
	s.progress.wait(what)
	return process.Await(ctx, what, pollInterval, func(ctx context.Context) error {
		err := ready(ctx)
		s.progress.answer(err)
		return err
	})
}

// serveInside serves HTTP on a port of the control plane's address.
func (s *Supervisor) serveInside(ctx context.Context, port int, handler http.Handler) error {
	listener, err := s.space.Listen(ctx, fmt.Sprintf("%s:%d", layout.ControlAddress, port))
	if err != nil {
		return fmt.Errorf("listening on port %d of the private network: %w", port, err)
	}
	s.serve(listener, handler)
	return nil
}

// serveSocket serves the host's side: machines, status and registry.
func (s *Supervisor) serveSocket(ctx context.Context) error {
	path := s.options.Layout.Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old socket: %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("closing %s to other users: %w", path, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", s.registry)
	mux.HandleFunc("GET /status", s.answerStatus)
	if s.options.Hub != nil {
		// For tests on the host, to make the hub fail.
		mux.Handle("/hub/", http.StripPrefix("/hub", s.options.Hub))
	}
	mux.Handle("/", s.service.Handler())
	s.serve(listener, mux)
	return nil
}

func (s *Supervisor) serve(listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: discardLog()}
	s.closers = append(s.closers, server.Close)
	go func() { _ = server.Serve(listener) }()
}
