// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import "strings"

// APIKeyProblem returns why engines cannot use a key, without showing it; empty if they can. Clients send the key in a
// header, and llama.cpp takes a comma as a separator of keys.
func APIKeyProblem(key []byte) string {
	switch {
	case len(key) == 0:
		return "is missing"
	case strings.TrimSpace(string(key)) != string(key):
		return "begins or ends with a space or a line break: write the key with printf %s or kubectl create secret, not with echo"
	case strings.ContainsFunc(string(key), func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' }):
		return "has a space, a comma or another character that is invalid in a header: use letters, digits, dashes and underscores"
	default:
		return ""
	}
}
