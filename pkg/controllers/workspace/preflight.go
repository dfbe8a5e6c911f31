// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/gpuplugin"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclass"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/lookup"
	"github.com/modelberth/modelberth/pkg/planner"
)

// How long the answers to a look before buying hold for all Workspaces. What is wrong is looked at again
// once in a retryClass, whoever waits for it.
const (
	holdsGood = 10 * time.Minute
	holdsBad  = retryClass - 5*time.Second
)

// preflight remembers what was seen before something was bought: all Workspaces need the same.
type preflight struct {
	reads lookup.Reads

	mu   sync.Mutex
	seen map[string]sight
	// logged is what was logged last.
	logged string
}

// sight is what is wrong; empty where nothing is.
type sight struct {
	problem string
	at      time.Time
}

// question is what is to be known of a source that is read for it.
type question struct{ source, what string }

// look returns what is wrong, as it was seen not too long ago, or as look finds it. No lock is held meanwhile: a source
// that does not answer holds up one caller.
func (p *preflight) look(
	ctx context.Context, asked question, now time.Time, look func(context.Context) (string, error),
) (string, error) {
	for {
		if problem, isKnown := p.known(asked, now); isKnown {
			return problem, nil
		}
		problem := ""
		isOurs, err := p.reads.Do(ctx, asked.source, now, func(ctx context.Context) error {
			var err error
			if problem, err = look(ctx); err == nil {
				p.keep(asked, sight{problem: problem, at: now})
			}
			return err
		})
		if isOurs || err != nil {
			return problem, err
		}
	}
}

// isNews reports whether a sentence is another one than was logged last, and takes it for logged.
func (p *preflight) isNews(sentence string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	isNews := p.logged != sentence
	p.logged = sentence
	return isNews
}

func (p *preflight) known(asked question, now time.Time) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, isKnown := p.seen[asked.source+" "+asked.what]
	holds := holdsGood
	if known.problem != "" {
		holds = holdsBad
	}
	age := now.Sub(known.at)
	return known.problem, isKnown && age >= 0 && age < holds
}

// keep remembers an answer, and forgets those that are too old.
func (p *preflight) keep(asked question, seen sight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.seen, func(_ string, known sight) bool { return seen.at.Sub(known.at) >= holdsGood })
	p.seen[asked.source+" "+asked.what] = seen
}

// checkPrepared sees to it that a machine of a plan can come to something, before money is spent on it.
func (r *Reconciler) checkPrepared(ctx context.Context, made *revision) error {
	class := r.classOf(made.NodeClass)
	if problem := placeProblem(&made.Plan, class); problem != "" { // the user's mistake, whatever the cluster is like
		return &stalledError{reason: v1beta1.ReasonSpecInvalid, message: "nothing is bought yet: " + problem}
	}
	if problem, err := r.unsettled(ctx); err != nil {
		return err
	} else if problem != "" {
		return &waitingError{message: "nothing is bought yet: " + problem, after: retryClass}
	}
	problem, err := r.lacking(ctx, made, class)
	if err != nil {
		return err
	}
	if problem != "" {
		return &stalledError{
			reason: v1beta1.ReasonMisconfigured, message: "nothing is bought yet: " + problem, retryAfter: retryClass,
		}
	}
	_, err = r.dedicates(ctx, made)
	return err
}

// lacking says what the cluster lacks of what a machine of a plan needs; empty where that is nothing.
func (r *Reconciler) lacking(ctx context.Context, made *revision, class v1beta1.NodeClassReference) (string, error) {
	now, source := r.Clock.Now(), sourceOf(class)
	problem, err := r.preflight.look(ctx, question{source, "state"}, now, func(ctx context.Context) (string, error) {
		return r.classProblem(ctx, class)
	})
	if err == nil && problem == "" && made.Plan.DiskGiB > 0 && nodeclass.Tells(class.Group, class.Kind) {
		what := fmt.Sprintf("%d GiB of disk for %s", made.Plan.DiskGiB, made.Plan.InstanceType)
		problem, err = r.preflight.look(ctx, question{source, what}, now, func(ctx context.Context) (string, error) {
			return r.diskProblem(ctx, class, &made.Plan)
		})
	}
	if err == nil && problem == "" && r.GPUPluginCheck && made.Plan.MachineGPUs > 0 {
		resource := made.Plan.GPUResource
		problem, err = r.preflight.look(ctx, question{"device plugins", resource}, now, func(ctx context.Context) (string, error) {
			return r.pluginProblem(ctx, resource)
		})
	}
	return problem, err
}

// unsettled says that a cluster has just been started, or that its control plane does not hear its nodes: of
// those that were not bought for a Workspace none is Ready. They may be back within a minute, with GPUs that are
// free, and before that there is neither DNS nor a device plugin for a machine. A cluster without any of them
// may be one whose first nodes are ours. The cache answers, so that this is looked at each time.
func (r *Reconciler) unsettled(ctx context.Context) (string, error) {
	all, err := r.silence(ctx)
	if err != nil {
		return "", err
	}
	others, isUnheard := all.Unheard()
	if !isUnheard {
		return "", nil
	}
	return fmt.Sprintf("none of the cluster's own nodes is Ready (there are %d): the cluster is starting, or its control plane has lost contact with their kubelets; "+
		"kubectl get nodes shows them; the controller continues once one is Ready", others), nil
}

// sourceOf is a node class as what is read.
func sourceOf(class v1beta1.NodeClassReference) string {
	return fmt.Sprintf("%s.%s %s", class.Kind, class.Group, class.Name)
}

// classProblem says what is wrong with a node class. One that nobody may read, or that says nothing of
// itself, is taken at its word.
func (r *Reconciler) classProblem(ctx context.Context, class v1beta1.NodeClassReference) (string, error) {
	state, words, err := r.Provisioner.Class(ctx, class)
	switch {
	case err != nil:
		return "", err
	case state == refusal.ClassMissing:
		return words + ": create it, or name another one in the chart's nodeClasses", nil
	case state == refusal.ClassNotReady:
		return words + ": fix what its conditions report", nil
	default:
		return "", nil
	}
}

// diskProblem says that the machines of a node class have too small a disk for a plan. A class that nobody
// may read is taken at the planner's word, which knows what the administrator has set.
func (r *Reconciler) diskProblem(ctx context.Context, ref v1beta1.NodeClassReference, plan *planner.Plan) (string, error) {
	class, err := r.readClass(ctx, ref)
	if err != nil || class == nil {
		return "", err
	}
	need := nodeclass.Need{GiB: plan.DiskGiB}
	if machine, err := r.Catalog.ResolveSKU(plan.InstanceType); err == nil {
		need.LocalDiskGiB = machine.LocalDiskGiB
	}
	return nodeclass.LacksDisk(class, need), nil
}

// metadataWarning says that the machines of a node class let pods read their metadata. It is advice: a class that
// cannot be read now is none.
func (r *Reconciler) metadataWarning(ctx context.Context, ref v1beta1.NodeClassReference) string {
	if !nodeclass.Tells(ref.Group, ref.Kind) {
		return ""
	}
	warning, err := r.preflight.look(ctx, question{sourceOf(ref), "metadata"}, r.Clock.Now(), func(ctx context.Context) (string, error) {
		class, err := r.readClass(ctx, ref)
		if err != nil || class == nil {
			return "", err
		}
		return nodeclass.ExposesMetadata(class), nil
	})
	if err != nil {
		log.FromContext(ctx).V(1).Info("metadata options were not checked", "nodeClass", ref.Name, "reason", err.Error())
	}
	return warning
}

// readClass returns a node class, or nil where there is none or nobody may read it.
func (r *Reconciler) readClass(ctx context.Context, ref v1beta1.NodeClassReference) (*unstructured.Unstructured, error) {
	mapping, err := r.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: ref.Group, Kind: ref.Kind})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("finding the resource of node class %s: %w", ref.Name, err)
	}
	class := &unstructured.Unstructured{}
	class.SetGroupVersionKind(mapping.GroupVersionKind)
	err = r.Live.Get(ctx, client.ObjectKey{Name: ref.Name}, class)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %q: %w", ref.Kind, ref.Name, err)
	}
	return class, nil
}

// pluginProblem says why no GPU would be advertised. Where NVIDIA's GPU operator is installed, it makes
// the DaemonSet once there is a node for it.
func (r *Reconciler) pluginProblem(ctx context.Context, resource string) (string, error) {
	if isThere, err := hasOperator(r.Client.RESTMapper()); isThere || err != nil {
		return "", err
	}
	found, isSeen, err := daemonSets(ctx, r.Live)
	if err != nil || !isSeen {
		return "", err
	}
	return gpuplugin.Missing(found, resource), nil
}

// hasOperator reports whether NVIDIA's GPU operator is installed.
func hasOperator(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: "nvidia.com", Kind: "ClusterPolicy"})
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("looking for a GPU operator: %w", err)
	}
	return err == nil, nil
}

// daemonSets are those of the cluster; isSeen is false where nobody may list them.
func daemonSets(ctx context.Context, live client.Reader) (found []appsv1.DaemonSet, isSeen bool, err error) {
	list := &appsv1.DaemonSetList{}
	err = live.List(ctx, list)
	if apierrors.IsForbidden(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("listing DaemonSets: %w", err)
	}
	return list.Items, true, nil
}

// dedicates reports whether the machines of a revision get the taint of their Workspace: where its pods tolerate it,
// which those of revisions of an earlier version do not, and the DaemonSets that a machine needs.
func (r *Reconciler) dedicates(ctx context.Context, made *revision) (bool, error) {
	isAsked := r.Dedication == gpuplugin.Auto || r.Dedication == gpuplugin.Enabled
	if !isAsked || !made.ToleratesDedication() {
		return false, nil
	}
	resource := ""
	if made.Plan.MachineGPUs > 0 {
		resource = made.Plan.GPUResource
	}
	asked := question{"tolerations of DaemonSets", resource}
	problem, err := r.preflight.look(ctx, asked, r.Clock.Now(), func(ctx context.Context) (string, error) {
		return r.dedicationProblem(ctx, resource)
	})
	if err != nil || problem == "" {
		return err == nil, err
	}
	if r.Dedication == gpuplugin.Enabled {
		return false, &stalledError{
			reason: v1beta1.ReasonTaintNotTolerated, retryAfter: retryClass,
			message: fmt.Sprintf("nothing is bought yet: %s, or set the chart's capacity.dedicatedTaint to Auto", problem),
		}
	}
	if r.preflight.isNews(problem) {
		log.FromContext(ctx).Info("machines get no taint of their Workspace: pods of others that tolerate sku=gpu may use them",
			"reason", problem)
	}
	return false, nil
}

// dedicationProblem says why machines should not have the taint of their Workspace.
func (r *Reconciler) dedicationProblem(ctx context.Context, resource string) (string, error) {
	found, isSeen, err := daemonSets(ctx, r.Live)
	if err != nil {
		return "", err
	}
	problem := gpuplugin.Excluded(found)
	if problem != "" || r.Dedication == gpuplugin.Enabled {
		return problem, nil
	}
	if !isSeen {
		return "the controller may not list DaemonSets", nil
	}
	// The GPU operator makes its DaemonSets once there is a node for them: the first one comes without.
	if isThere, err := hasOperator(r.Client.RESTMapper()); !isThere || resource == "" || err != nil {
		return "", err
	}
	return gpuplugin.Unseen(found, resource), nil
}
