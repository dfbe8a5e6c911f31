// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the controller under many Workspaces at once, on a local cloud with mere objects for machines:
// their times compared with the cluster's own, the controller's requests to the API server, and its memory. Times and
// counts come from the API server's audit log. It sees only the controller's requests and process, and calls none of
// its code.
package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/script"
)

// AuditPolicy is the API server's audit policy for a benchmark.
//
//go:embed audit-policy.yaml
var AuditPolicy []byte

// User names in the audit log.
const (
	administrator = "admin"
	controller    = "system:serviceaccount:" + systemNamespace + ":" + release
)

// Names of the controller's installation on the local cloud.
const (
	release         = "modelberth"
	systemNamespace = "modelberth-system"
)

// Namespaces of the waiting Workspaces, of the first ones at once, of the timed ones, of the stand-ins without a
// controller, and of the script.
const (
	waitingNamespace = "bench-waiting"
	firstNamespace   = "bench-first"
	loadNamespace    = "bench"
	floorNamespace   = "bench-floor"
	scriptNamespace  = "bench-script"
	floorPrefix      = "floor-"
	scriptPrefix     = "script-"
)

// The cloud's slowness for the waiting Workspaces: it answers after slowness; the count begins after settling, with
// everything requested and reported.
const (
	waitingWorkspaces = 20
	slowness          = 45 * time.Second
	settling          = 10 * time.Second
)

// Settings of a bench.
type Settings struct {
	// Layout belongs to a running cloud with the chart installed.
	Layout layout.Layout
	// Workspaces is how many are applied at once, and Model the name of their preset.
	Workspaces int
	Model      string
	// MachinesTake is how long the cloud takes to sell a machine, with a controller and without.
	MachinesTake time.Duration
	// Say reports the progress.
	Say func(format string, args ...any)
}

// Bench is one measurement.
type Bench struct {
	settings Settings
	kube     client.Client
	log      *Log
	// requests are the controller's so far.
	requests []Request
	courses  map[string]*Course
	figures  Figures
}

// Run measures, and returns its figures also if it breaks off. The cloud is not of much use for anything else
// afterwards.
func Run(ctx context.Context, settings Settings) (Figures, error) {
	b, err := open(settings)
	if err != nil {
		return Figures{}, err
	}
	defer func() { _ = b.log.Close() }()
	b.figures = Figures{
		Workspaces: settings.Workspaces, MachinesTake: settings.MachinesTake, First: NewCourse(firstNamespace), Load: NewCourse(loadNamespace),
		Floor: NewCourse(floorNamespace), Script: NewCourse(scriptNamespace),
	}
	err = b.run(ctx)
	return b.figures, err
}

// open returns a Bench that has measured nothing. Its log is to be closed.
func open(settings Settings) (*Bench, error) {
	config, err := clientcmd.BuildConfigFromFlags("", settings.Layout.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the access to the cluster: %w", err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	kube, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	log, err := OpenLog(settings.Layout.Log("audit"))
	if err != nil {
		return nil, err
	}
	return &Bench{settings: settings, kube: kube, log: log, courses: map[string]*Course{}}, nil
}

func (b *Bench) run(ctx context.Context) error {
	if err := b.waiting(ctx); err != nil {
		return fmt.Errorf("measuring Workspaces that wait for machines: %w", err)
	}
	if err := b.first(ctx); err != nil {
		return fmt.Errorf("measuring the first %d Workspaces at once: %w", b.settings.Workspaces, err)
	}
	if err := b.load(ctx); err != nil {
		return fmt.Errorf("measuring %d Workspaces at once: %w", b.settings.Workspaces, err)
	}
	if err := b.restart(ctx); err != nil {
		return fmt.Errorf("measuring a restart of the controller: %w", err)
	}
	floor, err := b.replays(ctx, floorNamespace, floorPrefix)
	if err != nil {
		return fmt.Errorf("reading the objects of the Workspaces: %w", err)
	}
	script, err := b.replays(ctx, scriptNamespace, scriptPrefix)
	if err != nil {
		return fmt.Errorf("reading the objects of the Workspaces: %w", err)
	}
	if err := b.remove(ctx, loadNamespace, b.settings.Workspaces); err != nil {
		return fmt.Errorf("removing the Workspaces: %w", err)
	}
	if err := b.floor(ctx, standIns(floor)); err != nil {
		return fmt.Errorf("measuring the same without a controller: %w", err)
	}
	if err := b.script(ctx, script); err != nil {
		return fmt.Errorf("measuring a script: %w", err)
	}
	return nil
}

// waiting counts the controller's requests during a wait for the cloud.
func (b *Bench) waiting(ctx context.Context) error {
	n := min(b.settings.Workspaces, waitingWorkspaces)
	b.settings.Say("%d Workspaces whose machines take %s", n, slowness)
	if err := b.slow(slowness); err != nil {
		return err
	}
	course, err := b.apply(ctx, waitingNamespace, n)
	if err != nil {
		return err
	}
	if err := b.await(ctx, "NodeClaims", course.Claimed, n); err != nil {
		return err
	}
	first, last := span(course.Claimed)
	from, until := last.Add(settling), first.Add(slowness)
	if err := b.await(ctx, "ready", course.Ready, n); err != nil {
		return err
	}
	if err := b.slow(b.settings.MachinesTake); err != nil {
		return err
	}
	if !until.After(from) {
		return fmt.Errorf("requesting %d machines took longer than %s, so no time was left to count requests", n, slowness-settling)
	}
	b.figures.Waiting, b.figures.Waited = Count(b.requests, controller, from, until), until.Sub(from)
	return b.remove(ctx, waitingNamespace, n)
}

// first times many Workspaces in a new cluster. It gives the cluster the heap and the caches of one in use, which the
// later measurements share: without it, the load would run on a cold API server, and the floor and the script on a warm
// one.
func (b *Bench) first(ctx context.Context) error {
	b.settings.Say("the first %d Workspaces at once", b.settings.Workspaces)
	course, err := b.apply(ctx, firstNamespace, b.settings.Workspaces)
	b.figures.First = course
	if err != nil {
		return err
	}
	if err := b.await(ctx, "ready", course.Ready, b.settings.Workspaces); err != nil {
		return err
	}
	return b.remove(ctx, firstNamespace, b.settings.Workspaces)
}

// load times many Workspaces, and counts their requests until all is quiet, or until it breaks off.
func (b *Bench) load(ctx context.Context) (err error) {
	b.settings.Say("%d Workspaces at once", b.settings.Workspaces)
	began := time.Now()
	defer func() {
		b.figures.Requests = Count(b.requests, controller, began, time.Now())
		var unread error
		_, b.figures.Peak, unread = memory(b.settings.Layout.Cgroup())
		err = errors.Join(err, unread)
	}()
	err = b.stage(ctx, &b.figures.LoadWork, func() error {
		began = time.Now()
		course, err := b.apply(ctx, loadNamespace, b.settings.Workspaces)
		b.figures.Load = course
		if err != nil {
			return err
		}
		return b.await(ctx, "ready", course.Ready, b.settings.Workspaces)
	})
	if err != nil {
		return err
	}
	return b.untilQuiet(ctx)
}

// slow has the cloud take so long for each machine from now on.
func (b *Bench) slow(delay time.Duration) error {
	var rules script.Script
	if delay > 0 {
		rules.Rules = []script.Rule{{Outcome: script.SlowCreate, Delay: metav1.Duration{Duration: delay}}}
	}
	data, err := json.Marshal(rules)
	if err != nil {
		return fmt.Errorf("encoding the cloud's script: %w", err)
	}
	if err := os.WriteFile(b.settings.Layout.Script(), data, 0o600); err != nil {
		return fmt.Errorf("setting the cloud's script: %w", err)
	}
	return nil
}

// span returns the earliest and the latest of the times.
func span(times Times) (first, last time.Time) {
	for _, at := range times {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}
