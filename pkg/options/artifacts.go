// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"

	"github.com/modelberth/modelberth/pkg/cosign"
)

// Artifacts has the required signatures of artifacts with weights.
type Artifacts struct {
	// Registries that the controller may contact for signatures, some with a path; empty means none.
	Registries []string
	// Signers are public keys; one of them must have signed each artifact. Empty demands nothing.
	Signers []cosign.Key
	// VerifierSocket is the Unix socket of the program that verifies signatures of identities; empty means that none are.
	VerifierSocket string
	// TrustedRoot is the file with the roots of trust that this program reads. Once they change, weights are verified again
	// before anything else begins with them; empty where that does not matter.
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
