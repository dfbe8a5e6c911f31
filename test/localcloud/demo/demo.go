// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo shows Modelberth at work on the local cloud: it installs the chart, applies a Workspace, shows a person
// the progress until the model answers, and asks it something. It decides the output and the commands for a person to
// repeat. It must not know the cloud's start. It sees no more of the product than a user of kubectl.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// Objects of the demo.
const (
	release         = "modelberth"
	systemNamespace = "modelberth-system"
	namespace       = "default"
)

// Limits of the demo's parts; the usual times are a fraction of them.
const (
	upLimit      = 5 * time.Minute
	pushLimit    = 5 * time.Minute
	installLimit = 3 * time.Minute
	readyLimit   = 5 * time.Minute
	askLimit     = time.Minute
	showLimit    = 30 * time.Second
)

// Cloud is the demo's view of the local cloud.
type Cloud interface {
	// Up brings the cloud up and shows the progress; it does nothing if the cloud is up.
	Up(ctx context.Context, out io.Writer) error
	// Push puts the images in a file into the cloud's registry.
	Push(ctx context.Context, file string) error
	// Kubeconfig is the path of the administrator's access.
	Kubeconfig() string
}

// Settings hold the places of everything.
type Settings struct {
	// Helm and Kubectl are programs, Curl is one as well.
	Helm, Kubectl, Curl string
	// Chart, Manifest and Overlay are the chart's directory, the Workspace to
	// apply, and the directory of the catalogue's additions.
	Chart, Manifest, Overlay string
	// Images are the files of the images to push.
	Images []string
	// Started is when the person began to wait.
	Started time.Time
}

// Demo is one run.
type Demo struct {
	settings Settings
	cloud    Cloud
	console  *Console
	tools    tools
}

// New returns a demo with its output on the console.
func New(settings Settings, cloud Cloud, console *Console) *Demo {
	return &Demo{
		settings: settings, cloud: cloud, console: console,
		tools: tools{helm: settings.Helm, kubectl: settings.Kubectl, kubeconfig: cloud.Kubeconfig()},
	}
}

// Run goes from nothing to an answer.
func (d *Demo) Run(ctx context.Context) error {
	if err := d.up(ctx); err != nil {
		return err
	}
	if err := d.Install(ctx); err != nil {
		return err
	}
	if err := d.serve(ctx); err != nil {
		return d.explain(ctx, err)
	}
	if err := d.showMachines(ctx); err != nil {
		return err
	}
	if err := d.ask(ctx); err != nil {
		return d.explain(ctx, err)
	}
	d.showWayOn()
	return nil
}

// explain shows the circumstances of an error, unless a person ended the demo.
func (d *Demo) explain(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		d.showFailure(ctx)
	}
	return cause(ctx, err)
}

func (d *Demo) up(ctx context.Context) error {
	ctx, cancel := within(ctx, upLimit, "the local cloud was not up")
	defer cancel()
	d.console.Step("bringing a Kubernetes cluster up on this machine")
	return d.cloud.Up(ctx, d.console.Indented())
}

// Install pushes the images and installs the chart with them.
func (d *Demo) Install(ctx context.Context) error {
	images, err := d.push(ctx)
	if err != nil {
		return err
	}
	values, err := chartValues(images, d.settings.Overlay)
	if err != nil {
		return err
	}
	d.console.Step("installing the chart %s", d.settings.Chart)
	ctx, cancel := within(ctx, installLimit, "the chart was not installed and its pods ready")
	defer cancel()
	err = d.console.During("waiting for the controller's pods", func() error {
		return d.tools.install(ctx, d.settings.Chart, values)
	})
	if err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		d.showController(context.WithoutCancel(ctx)) // each look has a limit of its own
	}
	return err
}

func (d *Demo) push(ctx context.Context) ([]image, error) {
	ctx, cancel := within(ctx, pushLimit, "the images were not pushed")
	defer cancel()
	d.console.Step("pushing %d images to the cluster's registry", len(d.settings.Images))
	var images []image
	for _, file := range d.settings.Images {
		image, err := readImage(file)
		if err != nil {
			return nil, err
		}
		err = d.console.During("pushing "+filepath.Base(file), func() error { return d.cloud.Push(ctx, file) })
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return images, nil
}

// serve applies the Workspace and follows it until it is ready.
func (d *Demo) serve(ctx context.Context) error {
	ctx, cancel := within(ctx, readyLimit, "the Workspace was not ready")
	defer cancel()
	d.console.Step("applying the Workspace")
	if err := d.tools.show(ctx, d.console, "apply", "--filename="+d.settings.Manifest); err != nil {
		return err
	}
	name, err := d.tools.kubectlOutput(ctx, "get", "--filename="+d.settings.Manifest, "--output=jsonpath={.metadata.name}")
	if err != nil {
		return err
	}
	follower, err := newFollower(d.tools.kubeconfig, namespace, name, d.console)
	if err != nil {
		return err
	}
	return follower.untilReady(ctx)
}

// within bounds a part and names the part in its error.
func within(ctx context.Context, limit time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s after %s", what, limit))
}

// cause prefers a plain explanation to "context deadline exceeded".
func cause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if why := context.Cause(ctx); errors.Is(why, context.Canceled) {
		return errors.New("interrupted")
	} else if !errors.Is(err, why) {
		return fmt.Errorf("%w: %w", why, err)
	}
	return err
}
