// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/wording"
)

// Limits of a rehearsal: its longest duration, the time to the next one after a refusal, and the longest quotation.
const (
	rehearsalLimit = 5 * time.Second
	rehearseAgain  = time.Minute
	mostQuoted     = 400
)

// Rehearsal is a dry run of StatefulSets and their pods before KAITO's pods make room for them.
type Rehearsal struct {
	Sets []*appsv1.StatefulSet
	// Replaced is KAITO's StatefulSet.
	Replaced *appsv1.StatefulSet
	// HasRoom reports whether the quotas admit the pods in place of KAITO's. The dry run counts the pods of both.
	HasRoom bool
}

// Rehearse returns an error unless the API server, with its webhooks and policies, would create the sets and their
// pods. It returns a *progress.StalledError if the API server refuses them.
func (g *Guard) Rehearse(ctx context.Context, writer client.Writer, r Rehearsal) error {
	ctx, cancel := context.WithTimeout(ctx, rehearsalLimit)
	defer cancel()
	for _, set := range r.Sets {
		for _, object := range []client.Object{set.DeepCopy(), r.podOf(set)} {
			err := writer.Create(ctx, object, client.DryRunAll, client.FieldOwner(apply.FieldOwner))
			if err := r.judge(err, object.GetName()); err != nil {
				return err
			}
		}
	}
	return nil
}

// podOf returns the first pod of a set as the cluster would create it. Its owner is KAITO's set: ours has no UID yet.
func (r Rehearsal) podOf(set *appsv1.StatefulSet) *corev1.Pod {
	ordinal := 0
	if set.Spec.Ordinals != nil {
		ordinal = int(set.Spec.Ordinals.Start)
	}
	template := set.Spec.Template.DeepCopy()
	owner := metav1.NewControllerRef(r.Replaced, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	owner.BlockOwnerDeletion = nil // otherwise some clusters require another permission
	out := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	out.Namespace, out.Name, out.OwnerReferences = set.Namespace, set.Name+"-"+strconv.Itoa(ordinal), []metav1.OwnerReference{*owner}
	out.Labels = maps.Clone(out.Labels)
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[appsv1.StatefulSetPodNameLabel], out.Labels[appsv1.PodIndexLabel] = out.Name, strconv.Itoa(ordinal)
	return out
}

// judge converts the API server's answer to a dry run into an error. An object that already exists is KAITO's: the API
// server reports it only after all its checks.
func (r Rehearsal) judge(err error, name string) error {
	var status apierrors.APIStatus
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &progress.WaitingError{
			Message: "KAITO's pods stay: the API server does not answer a dry run of the new pods in time: check the admission webhooks for pods",
			After:   rehearseAgain,
		}
	case !errors.As(err, &status) || !isRefusal(status.Status().Code):
		return fmt.Errorf("rehearsing the pods that replace KAITO's: %w", err)
	}
	words := err.Error()
	if r.HasRoom && strings.Contains(words, "exceeded quota") {
		return nil
	}
	return &progress.StalledError{
		Reason: v1beta1.ReasonPodRefused, RetryAfter: rehearseAgain,
		Message: fmt.Sprintf("KAITO's pods stay, because the cluster would reject %s of the new plan (%s): %s; or revert the edit",
			name, wording.Clip(words, mostQuoted), diagnosis.WayPast(words)),
	}
}

// isRefusal reports whether the same request would be refused again.
func isRefusal(code int32) bool {
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusConflict && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}
