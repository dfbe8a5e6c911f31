// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"regexp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
)

// checkWeights refuses sources that admission also refuses, and credentials that the agent cannot combine.
func checkWeights(in *v1beta1.InferenceSpec) error {
	from := in.Weights
	if from == nil {
		return nil
	}
	given := 0
	for _, isGiven := range []bool{from.OCI != nil, from.Image != nil, from.PersistentVolumeClaim != nil, from.HostPath != nil} {
		if isGiven {
			given++
		}
	}
	switch {
	case in.Template != nil:
		return invalid("inference.weights has no effect on inference.template: mount the files in the template")
	case given != 1:
		return invalid("inference.weights must have exactly one of oci, image, persistentVolumeClaim and hostPath")
	}
	if problem := pathProblem(from.Path); problem != "" {
		return invalid("inference.weights.path" + problem)
	}
	if from.OCI != nil && from.OCI.Verify != nil {
		if problem := verificationProblem(from.OCI.Verify); problem != "" {
			return invalid("inference.weights.oci.verify" + problem)
		}
	}
	if from.OCI == nil || from.OCI.PullSecret == "" {
		return nil
	}
	for i, adapter := range in.Adapters {
		for _, name := range adapter.Source.ImagePullSecrets {
			if name != from.OCI.PullSecret {
				return invalid(fmt.Sprintf("inference.adapters[%d].source.imagePullSecrets names Secret %q, but "+
					"inference.weights.oci.pullSecret names %q: put the credentials of all registries into one Secret", i, name, from.OCI.PullSecret))
			}
		}
	}
	return nil
}

// verificationProblem returns why a signature requirement is invalid; empty if it is valid.
func verificationProblem(wanted *v1beta1.OCIVerification) string {
	given := 0
	for _, isGiven := range []bool{wanted.PublicKey != "", wanted.PublicKeyConfigMap != "", wanted.Keyless != nil} {
		if isGiven {
			given++
		}
	}
	if given != 1 {
		return " must have exactly one of publicKey, publicKeyConfigMap and keyless"
	}
	identity := wanted.Keyless
	if identity == nil {
		return ""
	}
	switch _, err := regexp.Compile(identity.SubjectRegExp); {
	case identity.Issuer == "":
		return ".keyless.issuer is empty: name the issuer of the signer's tokens"
	case (identity.Subject == "") == (identity.SubjectRegExp == ""):
		return ".keyless must have exactly one of subject and subjectRegExp"
	case err != nil:
		return fmt.Sprintf(".keyless.subjectRegExp is not a regular expression: %v", err)
	}
	return ""
}

// weightsDisk returns how many copies of the weights a machine's disk holds: none if they are on a volume, two if they
// are in an image.
func weightsDisk(from *v1beta1.WeightsSource) planner.WeightsDisk {
	switch {
	case from == nil || from.OCI != nil:
		return planner.WeightsOnce
	case from.Image != nil:
		return planner.WeightsTwice
	default:
		return planner.WeightsElsewhere
	}
}
