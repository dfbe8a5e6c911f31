// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"

	"github.com/modelberth/modelberth/pkg/cosign"
)

// Artifacts has the settings for signatures of artifacts with weights.
type Artifacts struct {
	// Registries that the controller may contact for signatures, some with a path; empty means none.
	Registries []string
	// Signers are public keys. One of them must have signed each artifact. Empty requires no signature.
	Signers []cosign.Key
	// VerifierSocket is the Unix socket of the program that verifies keyless signatures; empty means no such program.
	VerifierSocket string
	// TrustedRoot is the file with that program's roots of trust. After a change, the controller verifies weights again
	// before it starts anything with them. Empty means that it does not watch the roots.
	TrustedRoot string
}

func (a *Artifacts) bind(flags *flag.FlagSet) {
	flags.Func("weights-registry", "registry, with an optional path, in which the controller may look up signatures of weights "+
		"(inference.weights.oci); repeatable; default: none", func(value string) error {
		if value == "" {
			return errors.New("it is empty: name a registry such as registry.example/models")
		}
		a.Registries = append(a.Registries, value)
		return nil
	})
	flags.Func("weights-signer", "public key in PEM, as in cosign.pub; every artifact with weights (inference.weights.oci) must be signed with "+
		"one of these keys; repeatable; default: none", func(value string) error {
		keys, err := cosign.ParseKeys(value)
		a.Signers = append(a.Signers, keys...)
		return err
	})
	flags.StringVar(&a.VerifierSocket, "weights-verifier-socket", "", "Unix socket of modelberth-verifier, which verifies signatures without keys "+
		"(inference.weights.oci.verify.keyless); default: none are verified")
	flags.StringVar(&a.TrustedRoot, "weights-trusted-root", "", "file with the roots of trust that modelberth-verifier uses; after a change, "+
		"weights are verified again before the next purchase")
}

func (a *Artifacts) validate() []error {
	if len(a.Signers) > 0 && len(a.Registries) == 0 {
		return []error{errors.New("--weights-signer requires signatures, but no --weights-registry allows the controller to read them")}
	}
	return nil
}
