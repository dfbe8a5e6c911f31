// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

// maxRegistryWords bounds the quote of a registry's message.
const maxRegistryWords = 200

// imagePull names the image, the kind of failure, the registry's message and the remedy.
func imagePull(in *Input, pod *corev1.Pod) (Finding, bool) {
	reasons := []string{
		"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed",
	}
	for _, status := range unsettled(pod) {
		if !slices.Contains(reasons, waitingReason(status)) {
			continue
		}
		failure := pullFailureOf(status.State.Waiting.Reason, status.State.Waiting.Message)
		if failure.next == "" {
			failure.next = "correct " + in.imageSetting(pod, status.Name)
		}
		what := failure.what
		if words := registryWords(status.State.Waiting.Message); failure.isQuoted && words != "" {
			what = fmt.Sprintf("%s (%s)", what, words)
		}
		return finding(failure.reason, "node %q cannot pull image %q of container %q, because %s: %s",
			pod.Spec.NodeName, imageOf(pod, status), status.Name, what, failure.next), true
	}
	return Finding{}, false
}

// imageSetting names the setting of a container's image.
func (in *Input) imageSetting(pod *corev1.Pod, container string) string {
	switch {
	case isAgent(pod, container):
		return "agentImage in the chart's values"
	case in.Plan != nil && in.Plan.Engine != "":
		return fmt.Sprintf("inference.engine.image, or engineImages.%s in the chart's values", in.Plan.Engine)
	default:
		return "the image's name"
	}
}

// pullFailure is a kind of failure. Without a next step, the remedy is to correct the setting of the image.
type pullFailure struct {
	reason, what, next string
	// isQuoted is set if the registry's message adds information.
	isQuoted bool
}

func pullFailureOf(reason, message string) pullFailure {
	message = strings.ToLower(message)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(message, word) })
	}
	of := func(what, next string) pullFailure {
		return pullFailure{reason: v1beta1.ReasonImagePullError, what: what, next: next, isQuoted: true}
	}
	plain := func(what, next string) pullFailure {
		return pullFailure{reason: v1beta1.ReasonImagePullError, what: what, next: next}
	}
	switch {
	case reason == "InvalidImageName":
		return plain("it is not an image reference", "")
	case reason == "ErrImageNeverPull":
		return plain("it is not on the node and the pull policy is Never",
			"load the image onto the node, or set workspaceImagePullPolicy to IfNotPresent in the chart's values")
	case reason == "SignatureValidationFailed":
		return plain("its signature is not accepted", "use a signed image, or change the node's policy")
	case has("no match for platform", "no matching manifest"):
		return pullFailure{
			reason: v1beta1.ReasonWrongArchitecture, what: "it has no build for the node's processor",
			next: "name an image for that processor, or allow machine types with another processor",
		}
	case has("unauthorized", "401", "403", "denied", "authorization failed", "authentication required", "no basic auth"):
		return of("the registry refuses access", "correct the name, give the node's identity read access, or name "+
			"a pull Secret in the ServiceAccount of inference.pod.serviceAccountName")
	case has("toomanyrequests", "429", "rate limit"):
		return of("the registry limits the rate of pulls", "pull with an account, or from a mirror")
	case has("not found", "manifest unknown", "notfound"):
		return plain("the registry does not have the image", "")
	case has("no space left"):
		return plain("the node's disk is full", "allow a machine type with a larger disk")
	case has("no such host", "timeout", "connection refused", "no route", "dial ", "deadline exceeded", "tls", "x509", "eof"):
		return of("the node cannot reach the registry",
			"check the image's name, the node's network and the registry's certificate, or use a registry that the nodes reach")
	default:
		return of("the pull fails", "kubectl describe pod shows the registry's answer")
	}
}

// registryWords returns the registry's own message about a failed pull. The kubelet wraps it in words that alternate
// between two forms and repeat the image's name.
func registryWords(message string) string {
	message = wording.OneLine(message)
	for _, wrapping := range []string{
		`^Back-off pulling image "[^"]*"(: )?`, `^(ErrImagePull|RegistryUnavailable): `, `^rpc error: code = \w+ desc = `,
		`^failed to pull and unpack image "[^"]*": `, `^failed to resolve (reference|image) "[^"]*": `, `^failed to copy: `,
		`^failed to do request: `, `^failed to authorize: `, `^failed to fetch (anonymous|oauth) token: `,
	} {
		message = regexp.MustCompile(wrapping).ReplaceAllString(message, "")
	}
	return wording.Clip(steady(message), maxRegistryWords)
}
