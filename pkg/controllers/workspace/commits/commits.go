// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commits stores the commit of the weights that the first pod of a revision resolved, for all later pods.
package commits

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
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Ensure stores the commit of the weights, which the first pod of a revision resolves if the plan could not. Later pods of
// that revision use the same commit. The pod's status keeps the commit, so a crash before this write loses nothing.
func Ensure(ctx context.Context, in client.Client, ws *v1beta1.Workspace, pods []corev1.Pod, known revision.History) error {
	if ws.Inference == nil || ws.Inference.Preset == nil {
		return nil
	}
	for i := range pods {
		name, commit := workload.SettledCommit(&pods[i])
		keeper := keeperOf(ws, known, name)
		if keeper == nil {
			continue
		}
		stored := &metav1.PartialObjectMetadata{}
		stored.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		err := in.Get(ctx, client.ObjectKey{Namespace: ws.Namespace, Name: name}, stored)
		if err == nil {
			continue // the first commit counts
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading ConfigMap %s: %w", name, err)
		}
		owner := metav1.OwnerReference{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision", Name: keeper.Name, UID: keeper.UID, Controller: new(true),
		}
		if err := keep(ctx, in, workload.Commits(ws, name, commit, owner)); err != nil {
			return err
		}
	}
	return nil
}

// keep stores a commit. If the API server forbids that, for example because of a quota, each pod resolves its own
// commit.
func keep(ctx context.Context, to client.Writer, keeper *corev1.ConfigMap) error {
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

// keeperOf returns the newest revision whose commit belongs in a ConfigMap; nil if there is none. The controller writes
// no other ConfigMap that a pod may name.
func keeperOf(ws *v1beta1.Workspace, known revision.History, configMap string) *appsv1.ControllerRevision {
	for i, object := range slices.Backward(known.Objects) {
		hash := object.Annotations[v1beta1.AnnotationHash]
		if hash != "" && configMap == workload.CommitsOf(ws, revision.ShortHash(hash)) {
			return &known.Objects[i]
		}
	}
	return nil
}
