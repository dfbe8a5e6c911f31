// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings keeps the controller's settings up to date with a ConfigMap.
//
// It decides when settings take effect: all at once, and only if all of them are valid. Otherwise the previous ones
// stay. It must not know the effect of a setting.
package settings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/pkg/options"
)

// The reasons of the events about the ConfigMap.
const (
	ReasonChanged = "SettingsChanged"
	ReasonRefused = "SettingsRefused"
)

// again is the delay before Changed is called again.
const again = time.Second

// Keeper holds the settings in use. Reconcile replaces them after a change of the ConfigMap.
type Keeper struct {
	// Name is the ConfigMap. Reader reads it.
	Name   types.NamespacedName
	Reader client.Reader
	// Use is called with new settings, before Changed.
	Use func(*options.Live)
	// Changed is called after the settings changed, until it returns true.
	Changed func(context.Context) bool
	// Events publishes events about the ConfigMap, if Leads returns true.
	Events  record.EventRecorder
	Leads   func() bool
	Metrics *Metrics

	current atomic.Pointer[options.Live]
	// used is the data of the settings in use. refused is the reported problem; empty if there is none.
	used    map[string]string
	refused string
	// isPending: Changed has not returned true since the last change.
	isPending bool
}

// Load reads the first settings. Without valid settings, the controller must not start: it would buy without its limits.
func (k *Keeper) Load(ctx context.Context) error {
	now, err := k.read(ctx)
	switch {
	case err != nil:
		return err
	case now.problem != "":
		return errors.New(now.problem)
	}
	k.use(now)
	return nil
}

// Current returns the settings in use. The result never changes.
func (k *Keeper) Current() *options.Live { return k.current.Load() }

// Reconcile compares the ConfigMap with the settings in use.
func (k *Keeper) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	now, err := k.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if now.problem != "" {
		k.refuse(ctx, now)
		return k.follow(ctx), nil
	}
	k.refused = ""
	k.Metrics.set(false)
	if changes := differences(k.used, now.found.Data); len(changes) > 0 {
		k.use(now)
		k.isPending = true
		text := strings.Join(changes, ", ")
		log.FromContext(ctx).Info("the controller uses new settings", "changes", text)
		k.publish(now.found, corev1.EventTypeNormal, ReasonChanged, "the controller uses the new settings: "+text)
	}
	return k.follow(ctx), nil
}

// reading is the state of the ConfigMap.
type reading struct {
	// found is nil if there is none.
	found *corev1.ConfigMap
	// next are its settings; nil with a problem.
	next    *options.Live
	problem string
}

// read reads the ConfigMap.
func (k *Keeper) read(ctx context.Context) (reading, error) {
	found := &corev1.ConfigMap{}
	err := k.Reader.Get(ctx, k.Name, found)
	if apierrors.IsNotFound(err) {
		return reading{problem: fmt.Sprintf("ConfigMap %s does not exist: create it again, for example with helm upgrade", k.Name)}, nil
	}
	if err != nil {
		return reading{}, fmt.Errorf("reading the settings in ConfigMap %s: %w", k.Name, err)
	}
	next, err := options.ParseLive(found.Data)
	if err != nil {
		return reading{found: found, problem: fmt.Sprintf("ConfigMap %s: %v", k.Name, err)}, nil
	}
	return reading{found: found, next: next}, nil
}

func (k *Keeper) use(now reading) {
	k.used = maps.Clone(now.found.Data)
	k.current.Store(now.next)
	k.Use(now.next)
}

// refuse reports a problem once. The previous settings stay.
func (k *Keeper) refuse(ctx context.Context, now reading) {
	k.Metrics.set(true)
	if now.problem == k.refused {
		return
	}
	k.refused = now.problem
	log.FromContext(ctx).Error(errors.New(now.problem), "the settings are refused: the controller keeps its previous ones, but a restarted pod cannot start")
	k.publish(now.found, corev1.EventTypeWarning, ReasonRefused,
		"the controller keeps its previous settings, but a restarted pod cannot start: "+now.problem)
}

// follow calls Changed if that is due.
func (k *Keeper) follow(ctx context.Context) ctrl.Result {
	if k.isPending && !k.Changed(ctx) {
		return ctrl.Result{RequeueAfter: again}
	}
	k.isPending = false
	return ctrl.Result{}
}

// publish publishes an event. Of several replicas, only the leader does.
func (k *Keeper) publish(about *corev1.ConfigMap, kind, reason, text string) {
	const most = 1000 // an Event may have 1024 bytes
	if about == nil || !k.Leads() {
		return
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	k.Events.Event(about, kind, reason, text)
}

// differences describes the changed keys, sorted.
func differences(old, updated map[string]string) []string {
	keys := maps.Clone(old)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, updated)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if old[key] != updated[key] {
			out = append(out, fmt.Sprintf("%s from %q to %q", key, old[key], updated[key]))
		}
	}
	return out
}
