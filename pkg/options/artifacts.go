// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"

	"github.com/modelberth/modelberth/pkg/cosign"
)

// Artifacts says whose signatures the artifacts need that Workspaces have weights from.
type Artifacts struct {
	// Registries that the controller may ask for signatures, some with a path; empty means that it asks none.
	Registries []string
	// Signers are public keys, one of which must have signed each artifact; empty demands nothing.
	Signers []cosign.Key
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
}

func (a *Artifacts) validate() []error {
	if len(a.Signers) > 0 && len(a.Registries) == 0 {
		return []error{errors.New("--weights-signer demands signatures, and there is no --weights-registry whose signatures may be read")}
	}
	return nil
}
