// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
)

const (
	// verifyDeadline bounds the reads of one artifact's signatures, and mostVerifying the number of concurrent reads: a
	// silent registry must not block all workers.
	verifyDeadline = 10 * time.Second
	mostVerifying  = 4
	// signerKey is the key of a ConfigMap for a public key, and authoritiesKey the key for certificate authorities.
	signerKey      = "cosign.pub"
	authoritiesKey = "ca.crt"
)

// Weights pins the weights of plans, so that all pods of a revision serve the same weights: a branch or tag to its
// commit, an artifact to its digest. It verifies signatures once, for the pinned digest, and the agents compare each
// byte with that digest. After a change of the requirements, it verifies them again before a machine or a pod is added
// for the plan (docs/adr/0014-verified-weights.md).
type Weights struct {
	objects    Objects
	hub        Hub
	signatures Signatures
	// authorities is the ConfigMap with additional certificate authorities; empty if there is none.
	authorities string
	// verifying holds an entry for each artifact under verification.
	verifying chan struct{}
}

// NewWeights returns a Weights. asked is nil if the administrator does not allow the hub; then the agents fetch the
// newest files of a branch. authorities names a ConfigMap in each namespace; empty if there is none.
func NewWeights(objects Objects, asked Hub, signatures Signatures, authorities string) *Weights {
	return &Weights{
		objects: objects, hub: asked, signatures: signatures, authorities: authorities, verifying: make(chan struct{}, mostVerifying),
	}
}

// Pin pins the weights of a plan. The error is a *progress.StalledError if access to them is denied. If the hub does
// not answer, the revision of the weights stays as it is, and the agents resolve it later.
func (w *Weights) Pin(ctx context.Context, d *Demand, plan *planner.Plan) error {
	if d.Workspace.Inference.Weights != nil {
		return w.pinDigest(ctx, d, plan)
	}
	if w.hub == nil || plan.Artifact == nil || plan.Artifact.Repo == "" || hub.IsCommit(plan.Artifact.Revision) {
		return nil
	}
	artifact, commit := *plan.Artifact, pinnedCommit(d.replaces, plan.Artifact.Repo) // weights stay on other machines
	if commit == "" {
		var err error
		if commit, err = w.commitOf(ctx, d.credentials.Token, plan); err != nil || commit == "" {
			return err
		}
	}
	artifact.Revision = commit
	plan.Artifact = &artifact
	return nil
}

// commitOf returns the commit of a plan's weights from the hub. If the hub does not answer, the commit is empty and the
// plan gets a warning.
func (w *Weights) commitOf(ctx context.Context, token string, plan *planner.Plan) (string, error) {
	artifact := plan.Artifact
	asked := hub.File{Repo: artifact.Repo, Revision: artifact.Revision, Path: "config.json"}
	if asked.Revision == "" {
		asked.Revision = "main"
	}
	if len(artifact.Files) > 0 {
		asked.Path = artifact.Files[0].Path
	}
	commit, err := w.hub.Commit(ctx, asked, token)
	_, isRefused := errors.AsType[*hub.UnauthorizedError](err)
	missing, isMissing := errors.AsType[*hub.NotFoundError](err)
	// A repository may lack config.json, but not the files that an artifact lists.
	isMissing = isMissing && (missing.Missing == "repository" || missing.Missing == "revision" || len(artifact.Files) > 0)
	switch {
	case isRefused || isMissing:
		return "", &progress.StalledError{Reason: v1beta1.ReasonModelNotDescribed, Message: err.Error(), RetryAfter: retryHub}
	case err != nil:
		log.FromContext(ctx).Info("the hub did not return the commit of the weights", "repo", asked.Repo, "reason", err.Error())
		plan.Warnings = append(plan.Warnings, fmt.Sprintf(
			"cannot resolve %s of %s to a commit: a later pod may fetch other weights", asked.Revision, asked.Repo))
		return "", nil
	}
	return commit, nil
}

// pinnedCommit returns the commit of a repository in a plan; empty if it has none.
func pinnedCommit(plan *planner.Plan, repo string) string {
	if plan == nil || plan.Artifact == nil || plan.Artifact.Repo != repo || !hub.IsCommit(plan.Artifact.Revision) {
		return ""
	}
	return plan.Artifact.Revision
}

// Unverified explains why no machine may be bought and no new pod started for an accepted plan: its weights were
// verified under other requirements than the current ones. It is empty if the requirements are the same; then nothing
// is read unless a ConfigMap holds the key.
func (w *Weights) Unverified(ctx context.Context, ws *v1beta1.Workspace, accepted *planner.Plan) (string, error) {
	in := ws.Inference
	if in == nil || in.Preset == nil {
		return "", nil
	}
	if problem := w.signatures.unverifiable(in); problem != "" || !w.signatures.demands(in) {
		return problem, nil
	}
	required, err := w.required(ctx, ws)
	if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
		return stalled.Message, nil
	}
	if err != nil {
		return "", err
	}
	demands, err := w.signatures.fingerprint(required)
	if err != nil || accepted.Weights != nil && accepted.Weights.Demands == demands {
		return "", err
	}
	return "the weights were not verified with the current keys, identities and roots of trust", nil
}

// pinDigest verifies the signatures of an artifact if they are required, and pins the signed digest.
func (w *Weights) pinDigest(ctx context.Context, d *Demand, plan *planner.Plan) error {
	if !w.signatures.demands(d.Workspace.Inference) {
		return nil
	}
	reference := d.Workspace.Inference.Weights.OCI.Reference
	var former *planner.VerifiedWeights // the weights stay on other machines
	if d.replaces != nil {
		former = d.replaces.Weights
	}
	if former == nil {
		if err := w.mayAsk(reference); err != nil {
			return err
		}
	}
	required, err := w.required(ctx, d.Workspace)
	if err != nil {
		return err
	}
	demands, err := w.signatures.fingerprint(required) // before the verifier reads the roots: later changes count
	if err != nil {
		return err
	}
	if former != nil {
		if former.Demands == demands {
			plan.Weights = former
			return nil
		}
		reference = former.Reference
		if err := w.mayAsk(reference); err != nil {
			return err
		}
	}
	if reference, err = w.verify(ctx, d, reference, required); err != nil {
		return err
	}
	plan.Weights = &planner.VerifiedWeights{Reference: reference, Demands: demands}
	return nil
}

// mayAsk returns an error if the controller may not read the registry of an artifact.
func (w *Weights) mayAsk(reference string) error {
	if cosign.IsBelow(reference, w.signatures.Registries) {
		return nil
	}
	allowed := "no registry"
	if len(w.signatures.Registries) > 0 {
		allowed = "only " + strings.Join(w.signatures.Registries, ", ")
	}
	return notVerified(fmt.Sprintf("inference.weights.oci.reference is %q: its signature cannot be verified, because the controller may "+
		"read %s: have the administrator add its registry (chart value weights.oci.registries)", reference, allowed))
}

// verify verifies the required signatures, and returns a reference by the signed digest.
func (w *Weights) verify(ctx context.Context, d *Demand, reference string, required []cosign.Requirement) (string, error) {
	select {
	case w.verifying <- struct{}{}:
		defer func() { <-w.verifying }()
	default:
		return "", &progress.WaitingError{Message: "waiting until the signatures of other artifacts are read", IsBrief: true}
	}
	credentials, err := credentialsOf(d)
	if err != nil {
		return "", err
	}
	var authorities string
	if w.authorities != "" {
		key := client.ObjectKey{Namespace: d.Workspace.Namespace, Name: w.authorities}
		authorities, err = configMapKey(ctx, w.objects, key, authoritiesKey)
		if err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, verifyDeadline)
	defer cancel()
	signed, err := w.signatures.Verify(ctx, cosign.Artifact{Reference: reference, Keychain: credentials}, []byte(authorities), required)
	if err != nil {
		return "", notVerified(fmt.Sprintf("inference.weights.oci.reference is %q, which cannot be verified: %v", reference, err))
	}
	return signed, nil
}

// required returns the requirements of the administrator and of the Workspace. All of them must be satisfied.
func (w *Weights) required(ctx context.Context, ws *v1beta1.Workspace) ([]cosign.Requirement, error) {
	var out []cosign.Requirement
	if len(w.signatures.Signers) > 0 {
		out = append(out, cosign.Requirement{Field: administrator, Keys: w.signatures.Signers})
	}
	wanted := ws.Inference.Weights.OCI.Verify
	if wanted == nil {
		return out, nil
	}
	if identity := wanted.Keyless; identity != nil {
		const field = "inference.weights.oci.verify.keyless"
		if !w.signatures.VerifiesIdentities {
			return nil, notVerified(field + " requires a keyless signature, but the administrator trusts no certificate authority: " +
				"have the administrator set weights.oci.keyless.trustedRootConfigMap in the chart's values, or sign with a key")
		}
		return append(out, cosign.Requirement{Field: field, Identity: &cosign.Identity{
			Issuer: identity.Issuer, Subject: identity.Subject, SubjectRegExp: identity.SubjectRegExp,
		}}), nil
	}
	field, text := "inference.weights.oci.verify.publicKey", wanted.PublicKey
	if name := wanted.PublicKeyConfigMap; name != "" {
		found, err := configMapKey(ctx, w.objects, client.ObjectKey{Namespace: ws.Namespace, Name: name}, signerKey)
		if err != nil {
			return nil, err
		}
		field, text = "inference.weights.oci.verify.publicKeyConfigMap", found
		if text == "" {
			return nil, notVerified(fmt.Sprintf("%s names ConfigMap %q, which does not exist in namespace %q or lacks the key %s: "+
				"create it with kubectl create configmap %s --from-file=%s", field, name, ws.Namespace, signerKey, name, signerKey))
		}
	}
	keys, err := cosign.ParseKeys(text)
	if err != nil {
		return nil, notVerified(fmt.Sprintf("%s is unusable: %v", field, err))
	}
	return append(out, cosign.Requirement{Field: field, Keys: keys}), nil
}

// credentialsOf returns the Workspace's credentials; anonymous ones if the Workspace names none.
func credentialsOf(d *Demand) (cosign.Credentials, error) {
	if len(d.credentials.Registries) == 0 {
		return cosign.Credentials{}, nil
	}
	credentials, err := cosign.ParseCredentials(d.credentials.Registries)
	if err != nil {
		return credentials, notVerified(fmt.Sprintf("inference.weights.oci.pullSecret names Secret %q, but its key %s is unusable: %v",
			d.Workspace.Inference.Weights.OCI.PullSecret, corev1.DockerConfigJsonKey, err))
	}
	return credentials, nil
}
