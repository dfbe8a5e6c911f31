// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// setsNamespace is the namespace of the InferenceSets.
const setsNamespace = "bench-sets"

// Sets are the settings of a benchmark of InferenceSets.
type Sets struct {
	// Count is the number of sets, and Replicas the number of Workspaces in each.
	Count, Replicas int
}

// Phase is one change of all sets at once.
type Phase struct {
	// What happened, to how many replicas.
	What    string
	Changed int
	// Took is the time until the last of them was ready, or its machines gone.
	Took time.Duration
	// Requests are the controller's until all was quiet.
	Requests Tally
	// Memory is the controller's at the end, in bytes.
	Memory int64
}

// SetFigures are the measurements of a benchmark of InferenceSets.
type SetFigures struct {
	Sets
	MachinesTake time.Duration
	Phases       []Phase
	// Peak is the controller's greatest memory, in bytes.
	Peak int64
}

// RunSets creates the sets at once, scales them down to one replica and up again, and deletes them. It returns its figures
// also if it breaks off.
func RunSets(ctx context.Context, settings Settings, sets Sets) (SetFigures, error) {
	settings.Workspaces = sets.Count * sets.Replicas
	figures := SetFigures{Sets: sets, MachinesTake: settings.MachinesTake}
	b, err := open(settings)
	if err != nil {
		return figures, err
	}
	defer func() { _ = b.log.Close() }()
	if err := b.slow(settings.MachinesTake); err != nil {
		return figures, err
	}
	all, rest := settings.Workspaces, settings.Workspaces-sets.Count
	for _, step := range []struct {
		what    string
		changed int
		do      func(context.Context, int) error
		// ready is the number of ready replicas afterwards.
		ready int
	}{
		{"created", all, func(ctx context.Context, i int) error { return b.createSet(ctx, i, sets.Replicas) }, all},
		{"scaled down to 1", rest, func(ctx context.Context, i int) error { return b.scaleSet(ctx, i, 1) }, sets.Count},
		{fmt.Sprintf("scaled up to %d", sets.Replicas), rest, func(ctx context.Context, i int) error { return b.scaleSet(ctx, i, sets.Replicas) }, all},
		{"deleted", all, b.deleteSet, 0},
	} {
		settings.Say("%d InferenceSets of %d, %s", sets.Count, sets.Replicas, step.what)
		phase, err := b.phase(ctx, sets.Count, step.do, step.ready)
		if err != nil {
			return figures, fmt.Errorf("measuring InferenceSets that are %s: %w", step.what, err)
		}
		if phase.Memory, figures.Peak, err = memory(settings.Layout.Cgroup()); err != nil {
			return figures, err
		}
		phase.What, phase.Changed = step.what, step.changed
		figures.Phases = append(figures.Phases, phase)
	}
	return figures, nil
}

// phase changes all sets, and waits until as many replicas are ready, with a machine each, and the controller is quiet.
func (b *Bench) phase(ctx context.Context, sets int, change func(context.Context, int) error, ready int) (Phase, error) {
	began := time.Now()
	if err := inParallel(sets, func(i int) error { return change(ctx, i) }); err != nil {
		return Phase{}, err
	}
	told := time.Now()
	err := b.until(ctx, asking, func(ctx context.Context) (missing string, err error) {
		seen, err := b.replicas(ctx)
		if err != nil {
			return "", err
		}
		if seen.ready != ready || seen.machines != ready {
			missing = fmt.Sprintf("%d ready replicas and %d machines, want %d", seen.ready, seen.machines, ready)
		}
		if time.Since(told) > telling {
			b.settings.Say("  %s", missing)
			told = time.Now()
		}
		return missing, b.look()
	})
	if err != nil {
		return Phase{}, err
	}
	out := Phase{Took: time.Since(began)}
	if err := b.untilQuiet(ctx); err != nil {
		return Phase{}, err
	}
	out.Requests = Count(b.requests, controller, began, time.Now())
	return out, nil
}

// population is the state of all sets.
type population struct{ ready, machines int }

func (b *Bench) replicas(ctx context.Context) (population, error) {
	var out population
	sets := &v1beta1.InferenceSetList{}
	if err := b.kube.List(ctx, sets, client.InNamespace(setsNamespace)); err != nil {
		return out, fmt.Errorf("listing InferenceSets: %w", err)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if set.Status.ObservedGeneration == set.Generation && int(set.Status.Replicas) == set.DesiredReplicas() {
			out.ready += int(set.Status.ReadyReplicas)
		}
	}
	claims := &metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(nodeClaims())
	if err := b.kube.List(ctx, claims); err != nil {
		return out, fmt.Errorf("listing NodeClaims: %w", err)
	}
	out.machines = len(claims.Items)
	return out, nil
}

// set returns the i-th InferenceSet.
func set(i int) *v1beta1.InferenceSet {
	return &v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: setsNamespace, Name: fmt.Sprintf("set-%04d", i)}}
}

func (b *Bench) createSet(ctx context.Context, i, replicas int) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: setsNamespace}}
	err := b.kube.Create(ctx, namespace)
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("making namespace %s: %w", setsNamespace, err)
	}
	out := set(i)
	out.Spec.Replicas = new(int32(replicas))
	out.Spec.Template.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: b.settings.Model}}
	if err := b.kube.Create(ctx, out); err != nil {
		return fmt.Errorf("creating InferenceSet %s: %w", out.Name, err)
	}
	return nil
}

func (b *Bench) scaleSet(ctx context.Context, i, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if err := b.kube.Patch(ctx, set(i), client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("scaling InferenceSet %s: %w", set(i).Name, err)
	}
	return nil
}

func (b *Bench) deleteSet(ctx context.Context, i int) error {
	if err := b.kube.Delete(ctx, set(i)); err != nil {
		return fmt.Errorf("deleting InferenceSet %s: %w", set(i).Name, err)
	}
	return nil
}

// Print writes a table of the phases, and below it the kinds of requests.
func (f SetFigures) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%d INFERENCESETS OF %d\tREPLICAS\tTOOK\tWRITES EACH\tREADS EACH\tEVENTS EACH\tMEMORY\n", f.Count, f.Replicas)
	for _, p := range f.Phases {
		each := func(n int) string { return fmt.Sprintf("%.4g", float64(n)/float64(max(p.Changed, 1))) }
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", p.What, p.Changed, seconds(p.Took),
			each(p.Requests.Writes), each(p.Requests.Reads), each(p.Requests.Events), megabytes(p.Memory))
	}
	fmt.Fprintf(table, "a machine takes\t\t%s\t\t\t\t\n", seconds(f.MachinesTake))
	fmt.Fprintf(table, "controller's memory, peak\t\t\t\t\t\t%s\n", megabytes(f.Peak))
	for _, p := range f.Phases {
		fmt.Fprintf(table, "\nREQUESTS for each replica, %s\t\t\t\t\t\t\n", p.What)
		for _, kind := range slices.Sorted(maps.Keys(p.Requests.Kinds)) {
			fmt.Fprintf(table, "%s\t%.4g\t\t\t\t\t\n", kind, float64(p.Requests.Kinds[kind])/float64(max(p.Changed, 1)))
		}
	}
	return table.Flush()
}
