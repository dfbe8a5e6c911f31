// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/pkg/wording"
)

// Limits of the quotes in warnings. The Workspace's status holds 512 characters of a warning.
const (
	maxSentence = 512
	maxName     = 63
	maxNames    = 6
)

// Sentence formats a warning and limits it to the length that the status holds.
func Sentence(format string, args ...any) string {
	return wording.Clip(wording.OneLine(fmt.Sprintf(format, args...)), maxSentence)
}

// are joins names and adds "is" or "are".
func are(names []string) string {
	if len(names) == 1 {
		return list(names) + " is"
	}
	return list(names) + " are"
}

// list joins names, and replaces the names beyond a limit by their number.
func list(names []string) string {
	shown := make([]string, 0, maxNames+1)
	for _, name := range names[:min(len(names), maxNames)] {
		shown = append(shown, wording.Clip(name, maxName))
	}
	if rest := len(names) - maxNames; rest > 0 {
		shown = append(shown, fmt.Sprintf("%d more", rest))
	}
	if len(shown) == 1 {
		return shown[0]
	}
	return strings.Join(shown[:len(shown)-1], ", ") + " and " + shown[len(shown)-1]
}
