// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discovery watches the cluster for models, their replicas and the keys of clients.
//
// It decides whether a pod counts as a replica. It must not know requests.
package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/watched"
)

// LabelKey selects the Secrets with keys of clients, in the router's namespace.
const LabelKey = "modelberth.dev/router-key"

// Scope has the namespaces of the watched objects.
type Scope struct {
	// Namespaces are the namespaces of the models; none means all.
	Namespaces watched.Namespaces
	// KeyNamespace has the Secrets with keys; if it is empty, clients need no key.
	KeyNamespace string
}

// Discovery has a table of the current models. It implements router.Directory.
type Discovery struct {
	cache     cache.Cache
	scope     Scope
	keys      *limit.Keys
	log       *slog.Logger
	table     models.Current
	changed   chan struct{}
	conflicts []models.Conflict
	problems  map[string]string // by unused Secret, as logged
}

// New returns a discovery. Run starts it.
func New(config *rest.Config, scope Scope, keys *limit.Keys, log *slog.Logger) (*Discovery, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	ofWorkspaces, err := labels.NewRequirement(v1beta1.LabelWorkspace, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting the endpoints of Workspaces: %w", err)
	}
	byObject := map[client.Object]cache.ByObject{
		&discoveryv1.EndpointSlice{}: {Label: labels.NewSelector().Add(*ofWorkspaces)},
		&v1beta1.Workspace{}:         {Transform: keepWorkspace},
		&v1beta1.InferenceSet{}:      {Transform: keepSet},
	}
	if scope.KeyNamespace != "" {
		byObject[&corev1.Secret{}] = cache.ByObject{
			Namespaces: map[string]cache.Config{scope.KeyNamespace: {}}, Label: labels.SelectorFromSet(labels.Set{LabelKey: "true"}),
		}
	}
	informers, err := cache.New(config, cache.Options{
		Scheme: scheme, DefaultNamespaces: scope.Namespaces.Cached(), ByObject: byObject,
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache: %w", err)
	}
	d := &Discovery{
		cache: informers, scope: scope, keys: keys, log: log, changed: make(chan struct{}, 1), problems: map[string]string{},
	}
	return d, nil
}

// keepWorkspace returns a Workspace with only the fields that the router uses, to save memory.
func keepWorkspace(object any) (any, error) {
	ws, ok := object.(*v1beta1.Workspace)
	if !ok {
		return object, nil
	}
	out := &v1beta1.Workspace{ObjectMeta: keepMeta(&ws.ObjectMeta)}
	if hash := ws.Labels[v1beta1.LabelTemplateHash]; hash != "" {
		out.Labels = map[string]string{v1beta1.LabelTemplateHash: hash}
	}
	out.Status.Conditions, out.Status.Endpoint = ws.Status.Conditions, ws.Status.Endpoint
	for _, adapter := range ws.Status.Adapters {
		out.Status.Adapters = append(out.Status.Adapters, v1beta1.AdapterStatus{Name: adapter.Name, State: adapter.State})
	}
	out.Inference = keepInference(ws.Inference)
	return out, nil
}

func keepInference(inference *v1beta1.InferenceSpec) *v1beta1.InferenceSpec {
	if inference == nil {
		return nil
	}
	out := &v1beta1.InferenceSpec{Preset: inference.Preset}
	for i := range inference.Adapters {
		if source := inference.Adapters[i].Source; source != nil {
			out.Adapters = append(out.Adapters, v1beta1.AdapterSpec{Source: &v1beta1.DataSource{Name: source.Name}})
		}
	}
	return out
}

func keepSet(object any) (any, error) {
	set, ok := object.(*v1beta1.InferenceSet)
	if !ok {
		return object, nil
	}
	out := &v1beta1.InferenceSet{ObjectMeta: keepMeta(&set.ObjectMeta)}
	if at := set.Annotations[v1beta1.AnnotationWake]; at != "" {
		out.Annotations = map[string]string{v1beta1.AnnotationWake: at}
	}
	out.Spec.Replicas, out.Status.Conditions, out.Status.Canary = set.Spec.Replicas, set.Status.Conditions, set.Status.Canary
	out.Spec.Template.Inference = keepInference(set.Spec.Template.Inference)
	return out, nil
}

func keepMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, OwnerReferences: m.OwnerReferences,
	}
}

// Models returns the current table.
func (d *Discovery) Models() *models.Table {
	table, _ := d.table.Load()
	return table
}

// Next returns the current table, and a channel that is closed when a new table replaces it.
func (d *Discovery) Next() (*models.Table, <-chan struct{}) { return d.table.Load() }

// Run watches until the context ends. It calls ready once the first table is complete.
func (d *Discovery) Run(ctx context.Context, ready func()) error {
	kinds := []client.Object{&v1beta1.Workspace{}, &v1beta1.InferenceSet{}, &discoveryv1.EndpointSlice{}}
	if d.scope.KeyNamespace != "" {
		kinds = append(kinds, &corev1.Secret{})
	}
	for _, kind := range kinds {
		informer, err := d.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { d.signal() }, UpdateFunc: func(any, any) { d.signal() }, DeleteFunc: func(any) { d.signal() },
		})
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- d.cache.Start(ctx) }()
	if !d.cache.WaitForCacheSync(ctx) {
		return fmt.Errorf("reading the cluster: %w", <-ended)
	}
	if err := d.refresh(ctx); err != nil {
		return err
	}
	ready()
	for {
		select {
		case err := <-ended:
			return err
		case <-d.changed:
			if err := d.refresh(ctx); err != nil {
				return err
			}
		}
	}
}

func (d *Discovery) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// refresh reads the cache and replaces the table.
func (d *Discovery) refresh(ctx context.Context) error {
	var workspaces v1beta1.WorkspaceList
	var sets v1beta1.InferenceSetList
	var slices discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&workspaces, &sets, &slices} {
		if err := d.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
	}
	// Refresh the keys first: a waiting request looks up its key again as soon as the table changes.
	if err := d.refreshKeys(ctx); err != nil {
		return err
	}
	table := models.New(Owners(workspaces.Items, sets.Items, slices.Items))
	d.table.Store(table)
	if conflicts := table.Conflicts(); !reflect.DeepEqual(conflicts, d.conflicts) {
		d.conflicts = conflicts
		for _, conflict := range conflicts {
			d.log.Warn("several objects claim the same model name: requests go to the oldest object", "model", conflict.Name, "owners", conflict.Owners)
		}
	}
	return nil
}

func (d *Discovery) refreshKeys(ctx context.Context) error {
	if d.scope.KeyNamespace == "" {
		return nil
	}
	var secrets corev1.SecretList
	if err := d.cache.List(ctx, &secrets, client.InNamespace(d.scope.KeyNamespace)); err != nil {
		return fmt.Errorf("listing Secrets: %w", err)
	}
	var keys []limit.Key
	problems := map[string]string{}
	for i := range secrets.Items {
		key, err := limit.Parse(secrets.Items[i].Name, secrets.Items[i].Data)
		if err != nil {
			problems[secrets.Items[i].Name] = err.Error()
			continue
		}
		keys = append(keys, key)
	}
	for _, ignored := range d.keys.Set(keys) {
		problems[ignored] = "another Secret has the same key"
	}
	for secret, problem := range problems {
		if d.problems[secret] != problem {
			d.log.Warn("a key is not used", "secret", secret, "problem", problem)
		}
	}
	d.problems = problems
	return nil
}
