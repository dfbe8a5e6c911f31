// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/request"
)

func TestAPIKeyProblem(t *testing.T) {
	for _, tc := range []struct{ reason, key, want string }{
		{"a key", "sk-0123_ABC.~+/=", ""},
		{"nothing", "", "is missing"},
		{"the line break that echo leaves", "sk-0123\n", "with a space or a line break"},
		{"a blank in front", " sk-0123", "begins or ends with a space"},
		{"two keys to llama.cpp", "sk-0123,sk-4567", "a comma"},
		{"two headers", "sk-0123\r\nHost: other", "invalid in a header"},
		{"letters beyond ASCII", "schlüssel", "invalid in a header"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := request.APIKeyProblem([]byte(tc.key))
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q in it", got, tc.want)
			}
			if strings.Contains(got, "sk-") {
				t.Errorf("%q shows the key", got)
			}
		})
	}
}
