// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

// Finding is the state of the inference server, in the form of the condition InferenceReady.
type Finding struct {
	Ready bool
	// Reason is a reason of the condition InferenceReady.
	Reason string
	// Message is a sentence of at most 1024 characters with the next step.
	Message string
}

const (
	// maxMessage is the limit of our conditions' messages.
	maxMessage = 1024
	// maxQuote bounds the quote of a log or of the kubelet.
	maxQuote = 400
)

// pending returns the finding of a start without a problem.
func pending(format string, args ...any) Finding {
	return finding(v1beta1.ReasonInferencePending, format, args...)
}

func finding(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// quoted formats a quote for the end of a sentence; empty if the quote is empty.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", wording.Clip(text, maxQuote))
}
