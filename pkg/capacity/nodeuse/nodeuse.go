// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeuse keeps the requests of a cluster's pods by node, from one watch. The watch starts at the first
// call: a cluster without Workspaces on existing nodes pays nothing.
//
// It decides nothing, and must not depend on its callers. It keeps only the node, the Workspace and the requests of a
// pod.
package nodeuse

import (
	"context"
	"fmt"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/capacity/existing"
)

// pageSize is how many pods are read at once. Each page is reduced before the next one is read.
const pageSize = 500

// Pods are the requests of pods on nodes.
type Pods struct {
	live   client.WithWatch
	wanted chan struct{}

	mu       sync.Mutex
	isWanted bool
	isSynced bool
	byNode   map[string]map[types.UID]existing.Use
	nodeOf   map[types.UID]string
}

// New returns the Pods of a client's cluster. It reads nothing until both Start and Of have been called.
func New(live client.WithWatch) *Pods {
	return &Pods{live: live, wanted: make(chan struct{})}
}

// Of returns the requests of pods on some nodes; false if the pods are not known yet.
func (p *Pods) Of(nodes []string) ([]existing.Use, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isWanted {
		p.isWanted = true
		close(p.wanted)
	}
	if !p.isSynced {
		return nil, false
	}
	var out []existing.Use
	for _, node := range nodes {
		for _, use := range p.byNode[node] {
			out = append(out, use)
		}
	}
	return out, true
}

// Start watches from the first call of Of until the context ends.
func (p *Pods) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.wanted:
	}
	source := inPages{p.live}
	lister := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: source.list, WatchFuncWithContext: source.watch,
	}, source)
	reflector := cache.NewReflectorWithOptions(lister, &corev1.Pod{}, p, cache.ReflectorOptions{Name: "pods of nodes"})
	reflector.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection returns true: only the leader plans.
func (*Pods) NeedLeaderElection() bool { return true }

// Add implements cache.ReflectorStore.
func (p *Pods) Add(object any) error { return p.Update(object) }

// Update implements cache.ReflectorStore.
func (p *Pods) Update(object any) error {
	pod, err := podOf(object)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(pod.uid)
	p.put(pod)
	return nil
}

// Delete implements cache.ReflectorStore.
func (p *Pods) Delete(object any) error {
	pod, err := podOf(object)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(pod.uid)
	return nil
}

// Replace implements cache.ReflectorStore.
func (p *Pods) Replace(objects []any, _ string) error {
	pods := make([]*held, 0, len(objects))
	for _, object := range objects {
		pod, err := podOf(object)
		if err != nil {
			return err
		}
		pods = append(pods, pod)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byNode, p.nodeOf = map[string]map[types.UID]existing.Use{}, make(map[types.UID]string, len(pods))
	for _, pod := range pods {
		p.put(pod)
	}
	p.isSynced = true
	return nil
}

// Resync implements cache.ReflectorStore.
func (*Pods) Resync() error { return nil }

// put adds a pod with requests. The lock is held.
func (p *Pods) put(pod *held) {
	if pod.use.Node == "" {
		return
	}
	uses := p.byNode[pod.use.Node]
	if uses == nil {
		uses = map[types.UID]existing.Use{}
		p.byNode[pod.use.Node] = uses
	}
	uses[pod.uid] = pod.use
	p.nodeOf[pod.uid] = pod.use.Node
}

// remove removes a pod. The lock is held.
func (p *Pods) remove(uid types.UID) {
	node := p.nodeOf[uid]
	delete(p.nodeOf, uid)
	delete(p.byNode[node], uid)
	if len(p.byNode[node]) == 0 {
		delete(p.byNode, node)
	}
}

// held is what the store keeps of a pod. A pod whose use names no node is not counted.
type held struct {
	uid types.UID
	use existing.Use
}

func podOf(object any) (*held, error) {
	switch object := object.(type) {
	case *held:
		return object, nil
	case *corev1.Pod:
		out := heldBy(object)
		return &out, nil
	default:
		return nil, fmt.Errorf("caching the pods of nodes: %T is not a pod", object)
	}
}

// heldBy returns the kept part of a pod. It holds no memory of the pod, and stores equal names once.
func heldBy(pod *corev1.Pod) held {
	out := held{uid: pod.UID}
	if use, holds := existing.UseOf(pod); holds {
		use.Node, use.Namespace, use.Workspace = shared(use.Node), shared(use.Namespace), shared(use.Workspace)
		out.use = use
	}
	return out
}

func shared(text string) string { return unique.Make(text).Value() }

// DeepCopyObject implements runtime.Object. The reflector requires it of the items of a list.
func (h *held) DeepCopyObject() runtime.Object { out := *h; return &out }

// GetObjectKind implements runtime.Object.
func (*held) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// heldList is a list of pods, reduced page by page.
type heldList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []held
}

// DeepCopyObject implements runtime.Object.
func (l *heldList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = append([]held(nil), l.Items...)
	return &out
}

// inPages lists and watches the pods that have a node and have not ended.
type inPages struct{ live client.WithWatch }

// IsWatchListSemanticsUnSupported returns true, so that the reflector lists the pods: it would keep a stream of all
// whole pods in memory until its end.
func (inPages) IsWatchListSemanticsUnSupported() bool { return true }

func onNodes() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
}

func (s inPages) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	out := &heldList{}
	for {
		page := &corev1.PodList{}
		err := s.live.List(ctx, page, &client.ListOptions{FieldSelector: onNodes(), Limit: pageSize, Continue: out.Continue})
		if err != nil {
			return nil, fmt.Errorf("listing the pods of nodes: %w", err)
		}
		for i := range page.Items {
			out.Items = append(out.Items, heldBy(&page.Items[i]))
		}
		out.ListMeta = page.ListMeta
		if page.Continue == "" {
			return out, nil
		}
	}
}

func (s inPages) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := s.live.Watch(ctx, &corev1.PodList{}, &client.ListOptions{FieldSelector: onNodes(), Raw: &options})
	if err != nil {
		return nil, fmt.Errorf("watching the pods of nodes: %w", err)
	}
	return events, nil
}
