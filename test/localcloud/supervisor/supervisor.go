// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package supervisor is the process behind a local cloud: it holds the private network, keeps the control plane
// running, sells machines, and serves registry and hub. Everything it starts dies with it. It decides the order of
// start and end, and is reachable through its socket alone.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/test/localcloud/cgroup"
	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/controlplane"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/netspace"
	"github.com/modelberth/modelberth/test/localcloud/pki"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// Options configures a supervisor.
type Options struct {
	Layout   layout.Layout
	Programs controlplane.Programs
	// SKUs is the directory of the catalogue of machine types.
	SKUs string
	// PauseImage is the file of the pause image, the holder of a pod's namespaces.
	PauseImage string
	// AuditPolicy is the file of the API server's audit policy; empty means the default.
	AuditPolicy string
	// InFlight is how many requests the API server serves at once; 0 means its default.
	InFlight int
	// Hollow makes machines mere Node objects.
	Hollow bool
	// APIPort is the loopback port for the API server; 0 takes a free one.
	APIPort int
	// Hub answers at layout.HubHost, and on the socket below /hub/; nil leaves it out.
	Hub http.Handler
}

// SystemNode is the name of the cloud's own node.
const SystemNode = "system"

// Supervisor is one running cloud.
type Supervisor struct {
	options Options
	log     *slog.Logger

	progress  *progress
	cgroups   cgroup.Host
	plan      controlplane.Plan
	space     *netspace.Space
	authority *pki.Authority
	service   *cloud.Service
	registry  http.Handler
	apiURL    string

	// kube is set when the API server answers; guarded because status reads it.
	mu      sync.Mutex
	kube    client.Client
	keepers []*process.Keeper

	running sync.WaitGroup
	closers []func() error
}

// stage is one step of the start, with its own limit.
type stage struct {
	name  string
	limit time.Duration
	run   func(context.Context) error
}

// Run brings the cloud up and keeps it up until ctx ends. It returns when
// nothing of it is left running.
func Run(ctx context.Context, options Options, log *slog.Logger) error {
	unlock, err := lock(options.Layout)
	if err != nil {
		return err
	}
	defer unlock()
	s := &Supervisor{
		options:  options,
		log:      log,
		progress: newProgress(time.Now()),
		plan: controlplane.Plan{
			Layout: options.Layout, Programs: options.Programs, AuditPolicy: options.AuditPolicy, InFlight: options.InFlight, Hollow: options.Hollow,
		},
	}
	// Not derived from ctx: the control plane ends after the machines, and the
	// network after both.
	planes, endPlanes := context.WithCancel(context.WithoutCancel(ctx))
	err = s.start(ctx, planes)
	if err == nil {
		s.progress.done()
		log.Info("cloud is up")
		<-ctx.Done()
	}
	if s.service != nil {
		s.service.Close()
	}
	endPlanes()
	s.running.Wait()
	return errors.Join(err, s.close())
}

func (s *Supervisor) start(ctx, planes context.Context) error {
	stages := []stage{
		{"network", 15 * time.Second, s.startNetwork},
		{"cloud and registry", 30 * time.Second, s.startCloud},
		{"API server", 2 * time.Minute, func(ctx context.Context) error { return s.startAPIServer(ctx, planes) }},
		{"controllers", 2 * time.Minute, func(ctx context.Context) error { return s.startControllers(ctx, planes) }},
		{"system node", 3 * time.Minute, s.startSystemNode},
		{"health", time.Minute, s.awaitHealth},
	}
	for _, stage := range stages {
		s.progress.enter(stage.name)
		s.log.Info("stage begins", "stage", stage.name)
		limited, cancel := context.WithTimeoutCause(ctx, stage.limit, fmt.Errorf("it took longer than %s", stage.limit))
		err := stage.run(limited)
		cancel()
		if err != nil {
			return fmt.Errorf("starting the %s: %w", stage.name, err)
		}
	}
	return nil
}

// close ends everything outside the contexts' reach, the latest first.
func (s *Supervisor) close() error {
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// lock keeps a second supervisor out of the state directory. The kernel lets go
// of it when the process ends, however it ends.
func lock(l layout.Layout) (unlock func(), err error) {
	f, err := os.OpenFile(l.Lock(), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another supervisor holds %s: %w", l.Lock(), err)
	}
	return func() { _ = f.Close() }, nil
}
