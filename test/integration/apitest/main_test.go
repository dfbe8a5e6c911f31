// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apitest tests the API server's answers to users of Workspaces: stored and refused values, messages, immutable
// fields, and old stored objects under today's rules.
//
// It installs the CRD and the policies of the chart unchanged, into an API server without our controllers. It must not
// know how a Workspace is planned or served.
package apitest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const (
	crdPath      = "../../../charts/modelberth/files/crds/kaito.sh_workspaces.yaml"
	policiesPath = "../../../charts/modelberth/files/policies"
	fieldOwner   = client.FieldOwner("apitest")
	settle       = 30 * time.Second
)

// server is the API server that the tests of this package share.
type server struct {
	client.Client
	config   *rest.Config
	warnings *warnings
	// kubeconfig is an administrator's.
	kubeconfig []byte
}

var api *server

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		if testing.Short() {
			fmt.Println("apitest: left out: -short is set and KUBEBUILDER_ASSETS is not")
			return 0
		}
		fmt.Fprintln(os.Stderr, "apitest: KUBEBUILDER_ASSETS is not set: run `make test-integration`,"+
			" or set it to the directory that holds etcd and kube-apiserver")
		return 1
	}
	log.SetLogger(logr.Discard())
	environment := &envtest.Environment{}
	if err := start(environment); err != nil {
		fmt.Fprintln(os.Stderr, "apitest:", errors.Join(err, environment.Stop()))
		return 1
	}
	code := m.Run()
	if err := environment.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "apitest: stopping the API server:", err)
		return 1
	}
	return code
}

func start(environment *envtest.Environment) error {
	config, err := environment.Start()
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	heard := &warnings{}
	config.WarningHandlerWithContext = heard

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	admin, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		return err
	}
	api = &server{Client: c, config: config, warnings: heard, kubeconfig: kubeconfig}

	ctx, cancel := context.WithTimeout(context.Background(), 2*settle)
	defer cancel()
	for _, name := range []string{"accepted", "full", "refused", "older", "changes"} {
		if err := api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	return api.install(ctx)
}

// warnings collects the API server's warnings.
type warnings struct {
	mu    sync.Mutex
	heard []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.heard
	w.heard = nil
	return heard
}
