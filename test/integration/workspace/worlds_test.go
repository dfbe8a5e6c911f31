// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// mostWorlds is how many tests run at once. They wait half of the time or more.
const mostWorlds = 6

// world is an API server with the stand-ins. Each test has its own, because a controller handles every Workspace of its
// API server; the stories of a test share it.
type world struct {
	config     *rest.Config
	client     client.WithWatch
	karpenter  *sim.Karpenter
	autoscaler *sim.Autoscaler
	workloads  *sim.Workloads
	endpoints  *sim.Endpoints
	overlay    string
	stop       func() error
	// environment runs the API server.
	environment *envtest.Environment
	// auditLog is a file, in the worlds of tests that read it.
	auditLog string
	// overlays is the catalogue of an installed Deployment, in the worlds of tests that have one.
	overlays *corev1.ConfigMap
}

var (
	// worlds without a test; nil is one never used.
	worlds = make(chan *world, mostWorlds)
	// registering is locked while a controller registers its metrics. The registration takes it for the only controller
	// of its process.
	registering sync.Mutex
)

// enter begins a test: it lets the test run in parallel, waits until a world is free, and returns the world when the
// test has ended.
func enter(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return enterAlone(t)
}

// enterAlone is enter for a test without others beside it, because it reads the shared metrics of a process.
func enterAlone(t *testing.T) *world {
	t.Helper()
	w := <-worlds
	var err error
	if w == nil {
		w, err = newWorld()
	}
	t.Cleanup(func() {
		if w != nil {
			w.karpenter.WorkAgain() // a refusal of this test must not meet the next one
		}
		worlds <- w
	})
	if err != nil {
		t.Fatalf("making a world: %v", err)
	}
	return w
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	flag.Parse()
	// Tests that wait for a world also count.
	if err := flag.Set("test.parallel", "100"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS is not set: run these tests with `make test-integration`")
		return 1
	}
	for range mostWorlds {
		worlds <- nil
	}
	code := m.Run()
	for range mostWorlds {
		if w := <-worlds; w != nil {
			if err := w.stop(); err != nil {
				fmt.Fprintln(os.Stderr, "ending a world:", err)
				code = 1
			}
		}
	}
	return code
}

// newWorld starts an API server with optional configuration, and the stand-ins.
func newWorld(configure ...func(*envtest.Environment)) (*world, error) {
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "charts", "modelberth", "files", "crds")},
		CRDs:                  []*apiextensionsv1.CustomResourceDefinition{sim.NodeClassCRD()},
		ErrorIfCRDPathMissing: true,
	}
	for _, crd := range karpapis.CRDs { // Installing writes to it
		environment.CRDs = append(environment.CRDs, crd.DeepCopy())
	}
	for _, c := range configure {
		c(environment)
	}
	config, err := environment.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the API server: %w", err), environment.Stop())
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{config: config, environment: environment, stop: func() error {
		cancel()
		return environment.Stop()
	}}
	if err := w.populate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the stand-ins: %w", err), w.stop())
	}
	return w, nil
}

// populate starts the stand-ins.
func (w *world) populate(ctx context.Context) error {
	w.config.QPS, w.config.Burst = 500, 1000
	scheme, err := app.Scheme()
	if err != nil {
		return err
	}
	mgr, err := manager.New(w.config, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		return err
	}
	if w.karpenter, err = sim.SetupKarpenter(mgr); err != nil {
		return err
	}
	if err := w.karpenter.SetupNodePools(mgr); err != nil {
		return err
	}
	if w.autoscaler, err = sim.SetupAutoscaler(mgr); err != nil {
		return err
	}
	if w.workloads, err = sim.SetupWorkloads(mgr); err != nil {
		return err
	}
	if w.endpoints, err = sim.SetupEndpoints(mgr); err != nil {
		return err
	}
	if err := sim.SetupGarbage(mgr); err != nil {
		return err
	}
	if w.client, err = client.NewWithWatch(w.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if w.overlay, err = filepath.Abs(filepath.Join("..", "..", "..", "examples", "local-catalog")); err != nil {
		return err
	}
	if err := w.client.Create(ctx, sim.NodeClass("default", "True", "")); err != nil {
		return err
	}
	go func() { _ = mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("caches did not fill")
	}
	return nil
}
