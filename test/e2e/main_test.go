// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// What the chart is installed as.
const (
	release         = "modelberth"
	systemNamespace = "modelberth-system"
	chartDir        = "../../charts/modelberth"
	examplesDir     = "../../examples"
)

// cloud is what all tests share: they run one after the other on one local cloud.
type cloud struct {
	kubeconfig string
	kubectl    string
	helm       string
	localcloud string
	// state is the local cloud's directory.
	state  string
	client client.WithWatch
	ledger *ledger
}

var local cloud

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	var err error
	if local, err = connect(); err != nil {
		return 1, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if local.ledger, err = keepLedger(ctx, local.client); err != nil {
		return 1, err
	}
	code := m.Run()
	return code, leftovers(ctx)
}

// connect reads the environment of `make test-e2e`. The variable is not KUBECONFIG, so that a plain `go test ./...`
// never runs this against somebody's cluster.
func connect() (cloud, error) {
	c := cloud{
		kubeconfig: os.Getenv("E2E_KUBECONFIG"),
		kubectl:    filepath.Join(os.Getenv("KUBE_BIN"), "kubectl"),
		helm:       os.Getenv("HELM"),
		localcloud: os.Getenv("LOCALCLOUD"),
	}
	if c.kubeconfig == "" || os.Getenv("KUBE_BIN") == "" || c.helm == "" || c.localcloud == "" {
		return c, errors.New("E2E_KUBECONFIG, KUBE_BIN, HELM and LOCALCLOUD must be set: run this through make test-e2e")
	}
	c.state = filepath.Dir(c.kubeconfig)
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return c, fmt.Errorf("reading E2E_KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return c, err
		}
	}
	if c.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return c, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return c, c.isLocal()
}

// isLocal refuses every cluster but the local cloud: the tests kill and uninstall things.
func (c cloud) isLocal() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	classes := &unstructured.UnstructuredList{}
	classes.SetGroupVersionKind(schema.GroupVersionKind{Group: "local.modelberth.dev", Version: "v1alpha1", Kind: "LocalNodeClassList"})
	if err := c.client.List(ctx, classes); err != nil {
		return fmt.Errorf("E2E_KUBECONFIG leads to a cluster that is not the local cloud (no LocalNodeClass): %w", err)
	}
	return nil
}

// leftovers fails the run if a machine outlives the tests.
func leftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	var claims []string
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		list, err := nodeClaims(ctx, local.client)
		if err != nil {
			return false, err
		}
		claims = nil
		for i := range list {
			claims = append(claims, list[i].GetName())
		}
		return len(claims) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("machines outlive the tests: NodeClaims %v: %w", claims, err)
	}
	return nil
}

func nodeClaims(ctx context.Context, from client.Reader) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(nodeClaimKind().GroupVersion().WithKind("NodeClaimList"))
	err := from.List(ctx, list)
	return list.Items, err
}

func nodeClaimKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"}
}

// poll asks until the answer is yes or the context ends; a failed question is asked again.
func poll(ctx context.Context, ask func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		done, err := ask(ctx)
		if done {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-ticker.C:
		}
	}
}
