// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

// Environment returns the environment of every program of the cloud: extra, and nothing of the caller's, least of all
// its proxy settings.
func Environment(extra ...string) []string {
	return append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/",
		"LANG=C",
	}, extra...)
}
