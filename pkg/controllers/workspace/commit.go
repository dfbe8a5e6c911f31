// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	revisions "github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/workload"
)

// ensureCommit stores the commit of a revision's first pod if the plan could not resolve it: later pods of that
// revision get the same. The pod's status keeps the commit, so a pass that ends before this write loses nothing.
func (r *Reconciler) ensureCommit(ctx context.Context, s *scope) error {
	if s.ws.Inference == nil || s.ws.Inference.Preset == nil {
		return nil
	}
	for i := range s.pods {
		name, commit := workload.SettledCommit(&s.pods[i])
		revision := s.keeperOf(name)
		if revision == nil {
			continue
		}
		known := &metav1.PartialObjectMetadata{}
		known.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.ws.Namespace, Name: name}, known)
		if err == nil {
			continue // the first one counts
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading ConfigMap %s: %w", name, err)
		}
		owner := metav1.OwnerReference{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision", Name: revision.Name, UID: revision.UID, Controller: new(true),
		}
		if err := keepCommit(ctx, r.Client, workload.Commits(s.ws, name, commit, owner)); err != nil {
			return err
		}
	}
	return nil
}

// keepCommit stores a commit. If a quota, for example, forbids that, each pod resolves its own.
func keepCommit(ctx context.Context, to client.Writer, keeper *corev1.ConfigMap) error {
	err := to.Create(ctx, keeper, client.FieldOwner(apply.FieldOwner))
	switch {
	case err == nil:
		log.FromContext(ctx).Info("kept the commit of the weights", "configMap", keeper.Name)
	case apierrors.IsForbidden(err):
		log.FromContext(ctx).Error(err, "the commit of the weights cannot be kept", "configMap", keeper.Name)
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating ConfigMap %s: %w", keeper.Name, err)
	}
	return nil
}

// keeperOf returns the newest revision whose commit a ConfigMap stores; nil if there is none. Other ConfigMaps in a
// pod get no write.
func (s *scope) keeperOf(configMap string) *appsv1.ControllerRevision {
	for i, object := range slices.Backward(s.revisions.Objects) {
		hash := object.Annotations[v1beta1.AnnotationHash]
		if hash != "" && configMap == workload.CommitsOf(s.ws, revisions.ShortHash(hash)) {
			return &s.revisions.Objects[i]
		}
	}
	return nil
}
