// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

func end(s *state) {
	s.b = 2
	r := &reconciler{}
	later := r.again
	later(s)
	last(s)
}
