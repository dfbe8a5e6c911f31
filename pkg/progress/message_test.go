// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package progress_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/modelberth/modelberth/pkg/progress"
)

func TestMessage(t *testing.T) {
	for _, test := range []struct {
		reason    string
		err       error
		want      string
		isWaiting bool
	}{
		{"the user has to act", &progress.StalledError{Reason: "Quota", Message: "raise it"}, "raise it", false},
		{"something comes first", progress.Behind("pods"), "waiting for the cache to show the newest pods", true},
		{"the API server refused", apierrors.NewBadRequest("no such field"), "no such field", false},
		{"any other error", errors.New("away"), "away", false},
	} {
		for _, err := range []error{test.err, fmt.Errorf("planning: %w", test.err)} {
			want := test.want
			if test.reason == "any other error" {
				want = err.Error()
			}
			if got := progress.Message(err); got != want {
				t.Errorf("%s: %q, want %q", test.reason, got, want)
			}
			if got := progress.IsWaiting(err); got != test.isWaiting {
				t.Errorf("%s: waiting %v, want %v", test.reason, got, test.isWaiting)
			}
		}
	}
	if progress.IsWaiting(nil) {
		t.Error("no error is one that waits")
	}
}
