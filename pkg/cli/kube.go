// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// requestsPerSecond is above the rate of any interactive use.
const requestsPerSecond = 50

// connect returns the cluster that the flags select. It writes the API server's warnings to warnings.
func connect(flags *genericclioptions.ConfigFlags, warnings io.Writer) (*Cluster, error) {
	loader := flags.ToRawKubeConfigLoader()
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, err
	}
	// Without a kubeconfig, the loader returns localhost:8080. Outside a pod, there is no cluster.
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, err
	}
	if len(raw.Clusters) == 0 && config.BearerTokenFile == "" {
		return nil, clientcmd.ErrEmptyConfig
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = requestsPerSecond, requestsPerSecond
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	objects, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	server, err := newServer(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{Namespace: namespace, Objects: objects, Pods: &kubePods{config: config, core: core}, Server: server}, nil
}

// kubePods implements Pods for a real cluster.
type kubePods struct {
	config *rest.Config
	core   corev1client.CoreV1Interface
}

func (p *kubePods) Log(ctx context.Context, pod types.NamespacedName, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	return p.core.Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
}

// Get uses a port-forward, because its connection starts in the pod itself. The API server's proxy connects from
// outside the pod, and a preset's NetworkPolicy blocks that.
func (p *kubePods) Get(ctx context.Context, pod types.NamespacedName, port int32, path string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address, err := p.Forward(ctx, pod, port)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("pod %s returned status %d", pod, response.StatusCode)
	}
	return io.ReadAll(io.LimitReader(response.Body, mostAnswer))
}

func (p *kubePods) Forward(ctx context.Context, pod types.NamespacedName, port int32) (string, error) {
	target := p.core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer, err := p.dialer(target)
	if err != nil {
		return "", err
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)},
		ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-ended:
		return "", err
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), nil
}

// dialer uses WebSockets like kubectl, or SPDY for servers without WebSockets.
func (p *kubePods) dialer(target *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(p.config)
	if err != nil {
		return nil, err
	}
	older := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	newer, err := portforward.NewSPDYOverWebsocketDialer(target, p.config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialer(newer, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
