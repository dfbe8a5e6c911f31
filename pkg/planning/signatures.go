// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Signatures are the administrator's requirements for signed artifacts.
type Signatures struct {
	// Registries are the registries that the controller may read, some with a path; empty means none.
	Registries []string
	// Signers are the administrator's keys. One of them must have signed each artifact; empty requires nothing.
	Signers []cosign.Key
	// VerifiesIdentities reports whether the controller can verify keyless signatures. TrustedRoots identifies the
	// current roots of trust; nil if they are unknown.
	VerifiesIdentities bool
	TrustedRoots       func() (string, error)
	// Verify verifies the required signatures of an artifact, and returns the artifact's reference by digest. It trusts
	// authorities in addition to the system's authorities.
	Verify func(ctx context.Context, artifact cosign.Artifact, authorities []byte, required []cosign.Requirement) (string, error)
}

const administrator = "the administrator (chart value weights.oci.requireVerify)"

func notVerified(message string) error {
	return &progress.StalledError{Reason: v1beta1.ReasonWeightsNotVerified, Message: message, RetryAfter: retryHub}
}

// unverifiable describes a source that cannot be verified although the administrator requires signatures; empty if
// there is none.
func (s Signatures) unverifiable(in *v1beta1.InferenceSpec) string {
	if len(s.Signers) == 0 {
		return ""
	}
	if in.Weights != nil && in.Weights.Image != nil {
		return fmt.Sprintf("inference.weights.image.reference is %q, and %s requires signatures, but the controller cannot verify "+
			"those of mounted images: use inference.weights.oci", in.Weights.Image.Reference, administrator)
	}
	for i := range in.Adapters {
		if source := in.Adapters[i].Source; source != nil && source.Image != "" {
			return fmt.Sprintf("inference.adapters[%d].source.image is %q, and %s requires signatures, but the controller cannot verify "+
				"those of adapters: use source.repository or source.volumeSource", i, source.Image, administrator)
		}
	}
	return ""
}

// Unverifiable describes such a source of a Workspace that already has a plan; empty if there is none.
func (s Signatures) Unverifiable(in *v1beta1.InferenceSpec) string { return s.unverifiable(in) }

// demands reports whether the administrator or the Workspace requires a signature of the Workspace's weights.
func (s Signatures) demands(in *v1beta1.InferenceSpec) bool {
	return in.Weights != nil && in.Weights.OCI != nil && (in.Weights.OCI.Verify != nil || len(s.Signers) > 0)
}

// fingerprint returns an identifier of the current requirements, including the roots of trust.
func (s Signatures) fingerprint(required []cosign.Requirement) (string, error) {
	roots := ""
	isIdentity := func(r cosign.Requirement) bool { return r.Identity != nil }
	if s.TrustedRoots != nil && slices.ContainsFunc(required, isIdentity) {
		var err error
		if roots, err = s.TrustedRoots(); err != nil {
			return "", err
		}
	}
	return cosign.Fingerprint(required, roots)
}
