// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/planner"
)

// The signature of an artifact is verified once, when a plan is made, and the plan keeps the digest that was signed: the
// agents fetch that one and compare each byte with it (docs/adr/0014-verified-weights.md).

const (
	// verifyDeadline bounds the reads of one artifact's signatures, mostVerifying how many artifacts are read at once: a
	// registry that does not answer must not hold all workers.
	verifyDeadline = 10 * time.Second
	mostVerifying  = 4
	// signerKey is where a ConfigMap has a public key, authoritiesKey where one has authorities.
	signerKey      = "cosign.pub"
	authoritiesKey = "ca.crt"
)

// Signatures says whose signatures artifacts need.
type Signatures struct {
	// Registries that the controller may ask, some with a path; empty means that it asks none.
	Registries []string
	// Signers are the administrator's keys, one of which must have signed each artifact; empty demands nothing.
	Signers []cosign.Key
	// Verify returns the reference by digest of an artifact that was signed as is required. It trusts authorities besides
	// the system's.
	Verify func(ctx context.Context, artifact cosign.Artifact, authorities []byte, required []cosign.Requirement) (string, error)
}

const administrator = "the administrator (chart value weights.oci.requireVerify)"

func notVerified(message string) error {
	return &stalledError{reason: v1beta1.ReasonWeightsNotVerified, message: message, retryAfter: retryHub}
}

// pinArtifact has the weights' signature verified where somebody demands one, and the digest fetched that was signed.
func (r *Reconciler) pinArtifact(ctx context.Context, s *scope, plan *planner.Plan) error {
	from := s.spec.Inference.Weights.OCI
	if from == nil || from.Verify == nil && len(r.Signatures.Signers) == 0 {
		return nil
	}
	signers, err := cosign.Fingerprint(r.Signatures.Signers)
	if err != nil {
		return err
	}
	reference := from.Reference
	if pinned := s.pinnedArtifact(); pinned != nil { // other machines are no other weights
		if pinned.Signers == signers {
			plan.Weights = pinned
			return nil
		}
		reference = pinned.Reference
	}
	if !cosign.IsBelow(reference, r.Signatures.Registries) {
		allowed := "no registry"
		if len(r.Signatures.Registries) > 0 {
			allowed = "only " + strings.Join(r.Signatures.Registries, ", ")
		}
		return notVerified(fmt.Sprintf("inference.weights.oci.reference is %q, whose signature cannot be verified, because the controller may "+
			"ask %s: have the administrator add its registry (chart value weights.oci.registries)", reference, allowed))
	}
	if reference, err = r.verify(ctx, s.spec, reference); err != nil {
		return err
	}
	plan.Weights = &planner.VerifiedWeights{Reference: reference, Signers: signers}
	return nil
}

// pinnedArtifact is that of the plan that this one takes the place of; nil where it has none.
func (s *scope) pinnedArtifact() *planner.VerifiedWeights {
	if s.revision == nil {
		return nil
	}
	return s.revision.Plan.Weights
}

// verify returns a reference by the digest that was signed as is required.
func (r *Reconciler) verify(ctx context.Context, ws *v1beta1.Workspace, reference string) (string, error) {
	select {
	case r.verifying <- struct{}{}:
		defer func() { <-r.verifying }()
	default:
		return "", &waitingError{message: "waiting for the signatures of other artifacts to be read", isBrief: true}
	}
	required, err := r.signers(ctx, ws)
	if err != nil {
		return "", err
	}
	credentials, err := r.credentials(ctx, ws)
	if err != nil {
		return "", err
	}
	authorities, err := r.authorities(ctx, ws.Namespace)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyDeadline)
	defer cancel()
	signed, err := r.Signatures.Verify(ctx, cosign.Artifact{Reference: reference, Keychain: credentials}, authorities, required)
	if err != nil {
		return "", notVerified(fmt.Sprintf("inference.weights.oci.reference is %q, which cannot be verified: %v", reference, err))
	}
	return signed, nil
}

// signers are the keys of the Workspace and of the administrator: each has to be satisfied.
func (r *Reconciler) signers(ctx context.Context, ws *v1beta1.Workspace) ([]cosign.Requirement, error) {
	var required []cosign.Requirement
	if len(r.Signatures.Signers) > 0 {
		required = append(required, cosign.Requirement{Field: administrator, Keys: r.Signatures.Signers})
	}
	wanted := ws.Inference.Weights.OCI.Verify
	if wanted == nil {
		return required, nil
	}
	field, text := "inference.weights.oci.verify.publicKey", wanted.PublicKey
	if name := wanted.PublicKeyConfigMap; name != "" {
		found, err := r.configMapKey(ctx, ws.Namespace, name, signerKey)
		if err != nil {
			return nil, err
		}
		field, text = "inference.weights.oci.verify.publicKeyConfigMap", found
		if text == "" {
			return nil, notVerified(fmt.Sprintf("%s names ConfigMap %q, which must exist in namespace %q with the key %s: "+
				"kubectl create configmap %s --from-file=%s", field, name, ws.Namespace, signerKey, name, signerKey))
		}
	}
	keys, err := cosign.ParseKeys(text)
	if err != nil {
		return nil, notVerified(fmt.Sprintf("%s is of no use: %v", field, err))
	}
	return append(required, cosign.Requirement{Field: field, Keys: keys}), nil
}

// credentials are those that the Workspace names; nobody's where it names none.
func (r *Reconciler) credentials(ctx context.Context, ws *v1beta1.Workspace) (cosign.Credentials, error) {
	const field = "inference.weights.oci.pullSecret"
	name := ws.Inference.Weights.OCI.PullSecret
	if name == "" {
		return cosign.Credentials{}, nil
	}
	if err := r.checkPullSecret(ctx, ws, field, name); err != nil {
		return cosign.Credentials{}, err
	}
	secret := &corev1.Secret{}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, secret); err != nil {
		return cosign.Credentials{}, fmt.Errorf("reading Secret %q: %w", name, err)
	}
	credentials, err := cosign.ParseCredentials(secret.Data[corev1.DockerConfigJsonKey])
	if err != nil {
		return credentials, notVerified(fmt.Sprintf("%s names Secret %q, whose key %s is of no use: %v",
			field, name, corev1.DockerConfigJsonKey, err))
	}
	return credentials, nil
}

// authorities are those that the pods of a namespace trust besides the system's.
func (r *Reconciler) authorities(ctx context.Context, namespace string) ([]byte, error) {
	name := r.Render.Workload.Weights.CAConfigMap
	if name == "" {
		return nil, nil
	}
	found, err := r.configMapKey(ctx, namespace, name, authoritiesKey)
	return []byte(found), err
}

// configMapKey is what a ConfigMap has under a key; empty where there is nothing.
func (r *Reconciler) configMapKey(ctx context.Context, namespace, name, key string) (string, error) {
	object := &corev1.ConfigMap{}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("reading ConfigMap %q: %w", name, err)
	}
	return object.Data[key], nil
}

// checkSigned refuses sources that nobody verifies, where the administrator demands signatures.
func (r *Reconciler) checkSigned(in *v1beta1.InferenceSpec) error {
	if problem := r.unverifiable(in); problem != "" {
		return notVerified(problem)
	}
	return nil
}

func (r *Reconciler) unverifiable(in *v1beta1.InferenceSpec) string {
	if len(r.Signatures.Signers) == 0 {
		return ""
	}
	if in.Weights != nil && in.Weights.Image != nil {
		return fmt.Sprintf("inference.weights.image.reference is %q, and %s demands signatures, which are not verified of images "+
			"that are mounted: use inference.weights.oci", in.Weights.Image.Reference, administrator)
	}
	for i := range in.Adapters {
		if source := in.Adapters[i].Source; source != nil && source.Image != "" {
			return fmt.Sprintf("inference.adapters[%d].source.image is %q, and %s demands signatures, which are not verified of "+
				"adapters: use source.repository or source.volumeSource", i, source.Image, administrator)
		}
	}
	return ""
}

// unverified says why machines may not be bought for an accepted plan: it was made under other demands. Empty where they
// may.
func (r *Reconciler) unverified(s *scope, accepted *revision) string {
	in := s.spec.Inference
	if in == nil || in.Preset == nil || len(r.Signatures.Signers) == 0 {
		return ""
	}
	if problem := r.unverifiable(in); problem != "" {
		return problem
	}
	if in.Weights == nil || in.Weights.OCI == nil {
		return ""
	}
	signers, err := cosign.Fingerprint(r.Signatures.Signers)
	if err != nil || accepted.Plan.Weights == nil || accepted.Plan.Weights.Signers != signers {
		return "its weights were not verified with the keys of " + administrator
	}
	return ""
}
